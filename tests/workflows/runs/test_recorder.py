"""workflows.runs.recorder: the record of a real DAG on Ray, finished and failed, and numbers that are given once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import LocalStore
from tests.support.tiny_runs import make_run, opening
from tests.support.tiny_stages import Pair, Words, WriteSettings, join, lingering, write
from workflows.engine import runner
from workflows.engine.dag import Stage, Step, in_order
from workflows.engine.events import Watcher
from workflows.engine.interrupts import sigterm_as_interrupt
from workflows.runs.record import Record, read_records
from workflows.runs.recorder import recording

WRITE, JOIN = Stage("tiny_stages.write", write, Words), Stage("tiny_stages.join", join, Words)


def _run(store: LocalStore, log: Path, right: str) -> Record:
    """Runs three steps with a recorder and returns the record that is in the store then."""
    pair = Pair(WRITE("left", WriteSettings(text="a")), WRITE("right", WriteSettings(text=right)))
    target: Step[Words] = JOIN("join", [pair], log)
    with recording(store, opening(target.fingerprint), in_order([target])) as recorder:
        runner.run([target], store, [recorder])
    return read_records(store)[0]


@pytest.mark.usefixtures("ray_cluster")
def test_the_record_follows_the_steps(tmp_path: Path) -> None:
    """Each step has its inputs, its state, its times and its last progress; a second command finds all of it cached."""
    store = LocalStore(tmp_path)
    record = _run(store, tmp_path / "log", "b")
    assert record.state == "finished"
    steps = {step.label: step for step in record.steps}
    assert [*steps] == ["left", "right", "join"]
    assert steps["join"].inputs == (steps["left"].folder, steps["right"].folder)
    for step in steps.values():
        assert step.state == "finished"
        assert store.find(step.folder)
        assert record.started < (step.started or 0) <= (step.ended or 0) < (record.ended or 0)
    assert steps["left"].progress == {"done": 1, "total": 1, "unit": "texts"}
    again = _run(store, tmp_path / "log", "b")
    assert again.run == record.run
    assert {step.state for step in again.steps} == {"cached"}


@pytest.mark.usefixtures("ray_cluster")
def test_the_step_that_failed_is_named(tmp_path: Path) -> None:
    """The record has the step, its error in one line, and what was not reached."""
    store = LocalStore(tmp_path)
    with pytest.raises(UserError):
        _run(store, tmp_path / "log", "bad")
    (record,) = read_records(store)
    assert (record.state, record.failed_step) == ("failed", "right")
    assert record.error == "the text is bad; write another"
    states = {step.label: step.state for step in record.steps}
    assert (states["right"], states["join"]) == ("failed", "waiting")


class Terminates(Watcher):
    """Sends SIGTERM to this process once a step is at work."""

    def started(self, step: Step[Artifact]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def drive_until_terminated(folder: Path) -> None:
    """Runs steps that take a minute, with a record and a Ray of its own."""
    store, target = LocalStore(folder), lingering(folder / "log", 60)
    with sigterm_as_interrupt(), recording(store, opening(target.fingerprint), in_order([target])) as recorder:
        runner.run([target], store, [recorder, Terminates()])


def test_a_command_ended_by_sigterm_was_interrupted(tmp_path: Path) -> None:
    """As by ctrl-C, although `ray.init` sets a handler of its own."""
    script = f"from pathlib import Path; from {__name__} import *; drive_until_terminated(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.stderr.strip().endswith("KeyboardInterrupt")
    (record,) = read_records(LocalStore(tmp_path))
    assert (record.state, record.error) == ("interrupted", "")
    assert "running" not in {step.state for step in record.steps}


def test_a_table_of_fewer_models_takes_the_place_of_the_planned_one(tmp_path: Path) -> None:
    """Once a model was given up, the table is another step, and what only that model needed was stopped."""
    store, log = LocalStore(tmp_path), tmp_path / "log"
    left, right = WRITE("left", WriteSettings(text="a")), WRITE("right", WriteSettings(text="b"))
    planned, made = JOIN("table", [Pair(left, right)], log), JOIN("table", [Pair(left)], log)
    with recording(store, opening(planned.fingerprint), in_order([planned])) as recorder:
        recorder.begin([made], [left])
        recorder.given_up(right, "failed")
        assert [step.label for step in recorder.record.steps] == ["left", "right", "table"]
    (record,) = read_records(store)
    assert [(step.label, step.folder, step.state) for step in record.steps] == [
        ("left", left.name, "stopped"),
        ("right", right.name, "failed"),
        ("table", made.name, "stopped"),
    ]


def test_numbers_are_given_once(tmp_path: Path) -> None:
    """Eight commands that begin at once, half of them the same, get a number for each thing asked for."""
    script = (
        "import sys; from pathlib import Path; from pipeline.store.store import LocalStore\n"
        "from tests.support.tiny_runs import make_run\n"
        "make_run(LocalStore(Path(sys.argv[1])), sys.argv[2])"
    )
    make_run(LocalStore(tmp_path), "0")  # the artifacts, so that they only read
    for fingerprint in "1234":
        make_run(LocalStore(tmp_path / "tables"), fingerprint)
    for table in (tmp_path / "tables" / "store").glob("tabulating-*"):
        table.rename(tmp_path / "store" / table.name)
    commands = [[sys.executable, "-c", script, str(tmp_path), fingerprint] for fingerprint in "12341234"]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=100) for process in processes] == [0] * 8
    names: dict[str, set[str]] = {}
    for record in read_records(LocalStore(tmp_path)):
        assert record.state == "finished"
        names.setdefault(record.fingerprint, set()).add(record.run)
    assert sorted(name for found in names.values() for name in found) == [f"table2/embedded/{i}" for i in range(1, 6)]
    newest = (tmp_path / "table2" / "embedded" / "newest").resolve()
    assert newest.parent == tmp_path / "table2" / "embedded"
    for run in range(1, 6):
        assert (tmp_path / "table2" / "embedded" / str(run) / "report.html").is_file()


def test_other_profiles_have_numbers_of_their_own(tmp_path: Path) -> None:
    """A profile's name becomes part of a path, whatever is in it."""
    store = LocalStore(tmp_path)
    assert make_run(store, "1").run == "table2/embedded/1"
    assert make_run(store, "2", profile="my text/../../x").run == "table2/my-text-..-..-x/1"
    assert make_run(store, "3", workflow="table3").run == "table3/embedded/1"
    assert make_run(store, "2").run == "table2/embedded/2"
