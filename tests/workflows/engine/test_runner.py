"""The runner, tested on a real Ray cluster."""

import io
import json
import os
import re
import secrets
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from rich.console import Console

from pipeline.context import Context
from pipeline.corpora.files import FilesSettings, FilesText
from pipeline.environment import worker_environment
from pipeline.errors import UserError
from pipeline.settings import CleaningSettings
from pipeline.store.artifact import Artifact, build_folder
from pipeline.store.store import Store
from tests.support import tiny_stages
from tests.support.lock_holder import lock_holder
from tests.support.tiny_stages import JOIN, LINGER, WRITE, Pair, Words, WriteSettings, joined, lingering, note, written
from tests.support.waiting import until
from workflows.engine import events, runner
from workflows.engine.dag import Stage, Step, inputs_of
from workflows.engine.execution import working
from workflows.engine.interface import Watcher
from workflows.engine.plan import Reason
from workflows.engine.progress import View
from workflows.engine.schedule import build
from workflows.stages import READERS

pytestmark = pytest.mark.usefixtures("ray_cluster")


class Log(Watcher):
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.warnings: list[tuple[str, str]] = []

    def started(self, step: Step) -> None:
        self.calls.append(("started", step.label))

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        self.calls.append((event.get("unit", next(iter(event))), step.label))
        self.warnings += [(step.label, event["warning"])] if "warning" in event else []

    def finished(self, step: Step[Artifact], summary: str) -> None:
        self.calls.append(("finished", step.label))


def test_the_first_error_of_a_map_is_raised_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(UserError, match="the text is bad; write another"):
        runner.run(
            [Stage("tiny_stages.fail_in_a_task", tiny_stages.fail_in_a_task, Words)("fails", log)], Store(tmp_path)
        )
    assert until(log.read_text, 200) == "stopped"


def test_a_reservation_that_no_node_can_hold_is_one_line(tmp_path: Path) -> None:
    step = replace(WRITE, cpus=4096)("needs much", WriteSettings(text="a"))
    with pytest.raises(UserError, match=r"^needs much reserves 4096 CPUs, but no node has more than 2; lower its"):
        runner.run([step], Store(tmp_path))


def test_a_step_that_no_node_has_room_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, with what it needs and what is free. What waits for an input is not."""
    monkeypatch.setattr(events, "WAITING_S", 0.3)
    long = replace(LINGER, cpus=2)("long", "a", 8.0, tmp_path / "log")
    waits, file = WRITE("waits", WriteSettings(text="b")), io.StringIO()
    watcher, step = Log(), JOIN("join", [Pair(long, waits)], tmp_path / "joined")
    runner.run([step], Store(tmp_path), [watcher, View(Console(file=file, width=120))])
    told = {label for event, label in watcher.calls if event == "waiting"}
    assert told in ({"waits"}, {"long"})  # whichever Ray has begun second
    assert "waiting: needs 1 of 2 CPUs, of which 0 are free" in file.getvalue() or "long" in told


def test_a_board_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here no node can hold it."""
    monkeypatch.setattr(events, "ANSWER_S", 1.0)
    relay = events.Relay([], [])
    relay.board = ray.remote(num_cpus=4096)(events.Board).remote()
    with pytest.raises(UserError, match=r"not answered for 1 s, .*; run the same command again to continue"):
        relay.fetch()
    ray.kill(relay.board)


def test_what_computes_runs_in_a_process_for_computing(tmp_path: Path) -> None:
    tell = Stage("tiny_stages.tell_environment", tiny_stages.tell_environment, Words)
    steps = [replace(tell, computes=computes)(f"tell {computes}", computes) for computes in (True, False)]
    told = [json.loads(words.text).items() for words in runner.run(steps, Store(tmp_path))]
    assert [worker_environment().items() <= variables for variables in told] == [True, False]


def test_a_dag_runs_once_and_reruns_only_what_changed(tmp_path: Path) -> None:
    """Outputs are correct and have a manifest. A second call runs nothing; a change reruns only affected steps."""
    store, log = Store(tmp_path), tmp_path / "log"
    watcher = Log()
    (words,) = runner.run([joined(log)], store, [watcher])
    assert isinstance(words, Words)
    assert words.text == "a b a [1, 1, 1]"
    assert ("texts", "left") in watcher.calls
    assert watcher.calls[-1] == ("finished", "join")
    manifest = json.loads((words.folder / "manifest.json").read_text())
    assert [each["label"] for each in manifest["inputs"]] == ["left", "right"]
    assert inputs_of(manifest) == [needed.fingerprint for needed in joined(log).inputs]
    assert manifest["files"]["words.txt"]["bytes"] == len(words.text)
    assert not list(store.artifacts.glob(".making*"))
    assert [path.name for path in (store.artifacts / ".locks").iterdir()] == ["guard"]

    runner.run([joined(log)], store)
    assert log.read_text() == "joined\n"

    watcher = Log()
    (words,) = runner.run([joined(log, right="cc")], store, [watcher])
    assert words.text == "a cc a [1, 2, 1]"
    assert ("started", "left") not in watcher.calls
    assert ("started", "right") in watcher.calls


@pytest.mark.parametrize("name", ["train", "dev"])
def test_text_that_is_replaced_after_it_was_hashed_is_not_published(tmp_path: Path, name: str) -> None:
    """Otherwise the next command with the old text would find the new one under its name."""
    for file in ("en", "de", "new"):
        (tmp_path / file).write_text(f"{file}\n")
    sides, store = {"source": tmp_path / "en", "target": tmp_path / "de"}, Store(tmp_path)
    function = READERS[FilesSettings][2 if name == "train" else 3]
    text = FilesText(name=name, languages=("en", "de"), files=(sides,))
    settings = [CleaningSettings()] if name == "train" else []
    step = Stage("files.read", function, Artifact, resumes=True)(f"read {name}", text, *settings)
    assert store.find(step.name) is None
    (tmp_path / "new").rename(tmp_path / "de")
    with pytest.raises(UserError, match=f"^the files of read {name} changed while they were read; run the same"):
        runner.run([step], store)
    assert not [*store.artifacts.glob("[!.]*"), *store.artifacts.glob(".making-*")]


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _draw(context: Context) -> Words:
    return written(context, secrets.token_hex(8))


@pytest.mark.parametrize("trains", [False, True])
def test_no_table_holds_results_of_two_generations(tmp_path: Path, trains: bool) -> None:
    """A draw is rebuilt for a second result: the first, which was built from the former draw, is rebuilt with it."""
    store, drawn = Store(tmp_path), Stage("tiny_stages.draw", _draw, Words, trains=trains)("draw")
    first, second = (JOIN(f"{number}", [Pair(drawn)], tmp_path / f"log {number}") for number in (1, 2))
    runner.run([first], store)
    store.set_aside(drawn.name)
    (words,) = runner.run([JOIN("table", [Pair(first, second)], tmp_path / "log")], store)
    assert words.text.count(drawn.published(store).text) == 2


def _train(context: Context, log: Path) -> Words:
    """Writes what an earlier call did not, and logs what it found."""
    found = sorted(path.name for path in context.folder.iterdir() if path.name != "manifest.json")
    note(log, f"{found}")
    (context.folder / "recovery").write_text("precious")
    return written(context, "precious")


def test_nothing_of_what_is_damaged_is_lost(tmp_path: Path) -> None:
    """A training run resumes from its intact part; any other stage's is set aside. Both are reported."""
    store, log = Store(tmp_path), tmp_path / "log"
    train = Stage("tiny_stages.train", _train, Words, trains=True)("train", log)
    join_step = JOIN("join", [Pair(train)], tmp_path / "joined")
    runner.run([join_step], store)
    _flip(store.folder(train.name) / "words.txt")
    os.truncate(store.folder(join_step.name) / "manifest.json", 20)
    watcher = Log()
    runner.run([join_step], store, [watcher])
    assert log.read_text() == "[]\n['recovery', 'words.txt']\n"
    (aside,) = store.artifacts.glob(".aside-*")
    assert aside.name.startswith(f".aside-{join_step.name}-")
    assert (aside / "manifest.json").stat().st_size == 20
    for step, file, outcome in (
        (train, "words.txt", "continuing from its intact part"),
        (join_step, "manifest.json", "set aside; rerunning the step"),
    ):
        (told,) = (text for label, text in watcher.warnings if label == step.label)
        assert told.startswith(f"{step.name} is damaged ({file} ")
        assert told.endswith(outcome)
    assert runner.to_run([join_step], store) == {}


def test_what_cannot_be_read_stays(tmp_path: Path) -> None:
    store, step = Store(tmp_path), joined(tmp_path / "log")
    runner.run([step], store)
    table = store.folder(step.name) / "words.txt"
    table.unlink()
    table.symlink_to(table.name)  # reading it fails with ELOOP, even as root
    with pytest.raises(UserError, match=r"words\.txt cannot be read \(Too many levels of symbolic links\)"):
        runner.run([step], store)
    assert table.is_symlink()
    assert (tmp_path / "log").read_text() == "joined\n"


def test_a_step_that_turns_out_to_be_missing_is_shown(tmp_path: Path) -> None:
    """An input is damaged after planning: the trial that finds it rebuilds it, and the screen shows it."""
    store, step = Store(tmp_path), joined(tmp_path / "log")
    (left, right), file = step.inputs, io.StringIO()
    runner.run([left, right], store)
    watchers: list[Any] = [Log(), View(Console(file=file, width=120))]
    with working({step: Reason("never built")}, store, watchers, None) as relay:
        _flip(store.folder(left.name) / "words.txt")
        build(runner.to_run([step], store), store, relay.board, follow=relay.follow)
    calls = [call for call in watchers[0].calls if call[0] in ("started", "finished")]
    assert calls == [(event, label) for label in ("left", "join") for event in ("started", "finished")]
    assert re.findall(r"(\d/\d) +(\w+) +done", file.getvalue()) == [("1/2", "left"), ("2/2", "join")]


class Killer(Log):
    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        super().__init__()
        self._processes = processes

    def finished(self, step: Step[Artifact], summary: str) -> None:
        super().finished(step, summary)
        for process in self._processes:
            process.kill()


def test_waiting_for_steps_of_another_workflow_takes_no_cpu(tmp_path: Path) -> None:
    """Two steps wait for two CPUs while a third runs; then the first two's processes die, and others take over."""
    step = lingering(tmp_path / "log", 0.1)
    with ExitStack() as stack:
        others = [stack.enter_context(lock_holder(Store(tmp_path).folder(needed.name))) for needed in step.inputs[:2]]
        watcher = Killer(others)
        (words,) = runner.run([step], Store(tmp_path), [watcher])
    assert words.text == "a b c [1, 1, 1]"
    assert sorted(label for event, label in watcher.calls if event == "waiting") == ["linger a", "linger b"]
    finished = [label for event, label in watcher.calls if event == "finished"]
    assert finished[0] == "linger c"
    assert finished[-1] == "join"
    assert len(finished) == 4


def test_a_step_whose_process_is_killed_is_retried(tmp_path: Path) -> None:
    step = Stage("tiny_stages.die_often", tiny_stages.die_often, Words)("die once", tmp_path / "log", 1)
    (words,) = runner.run([step], Store(tmp_path))
    assert words.text == "alive"
    assert not build_folder(Store(tmp_path).folder(step.name)).exists()


def _driver(function: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    script = f"import sys; from tests.support import tiny_stages; tiny_stages.{function}(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(folder / "store"), str(folder / "log")]
    return command, {**os.environ, "PYTHONPATH": os.getcwd()}


def test_a_step_that_computes_on_a_gpu_waits_for_one(tmp_path: Path) -> None:
    """If the cluster's GPU is busy, it reports that it waits and gets it later, rather than using a CPU."""
    command, environment = _driver("drive_behind_a_gpu", tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "tell GPUs: no GPU is free\nGPUs [0]\n"), done.stderr


@pytest.mark.slow
def test_two_drivers_on_one_store_make_each_step_once(tmp_path: Path) -> None:
    """Two processes with separate Ray clusters begin together: both get the result, and each stage runs once."""
    command, environment = _driver("drive", tmp_path)
    drivers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    waited = []
    try:
        for driver in drivers:
            printed, errors = driver.communicate(timeout=200)
            assert driver.returncode == 0, errors
            *waits, words = printed.splitlines()
            assert words == "a b c [1, 1, 1]"
            waited += waits
    finally:
        for driver in drivers:
            driver.kill()
    lines = (tmp_path / "log").read_text().splitlines()
    assert sorted(lines) == sorted([f"{word} {text}" for text in "abc" for word in ("begins", "ends")] + ["joined"])
    assert {line.partition(": being built by pid")[0] for line in waited} >= {"linger a", "linger b"}
    assert not list(tmp_path.rglob("*.lock"))
