import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store.store import Store
from tests.support.tiny_dag import AVERAGE, TRAIN, SeedSettings, make, run_table, table_of
from workflows import reproduce_table4
from workflows.cli.options import Common
from workflows.cli.reproduce import requested
from workflows.engine.dag import in_order
from workflows.names import names_into
from workflows.profiles.parsing import load_parsing_profile
from workflows.runs import Run, begin_run, begun, commit, runs_in

KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline.store.store import Store
from tests.support.tiny_dag import table_of
from workflows.runs import begun
with begun(Store(Path(sys.argv[1])), "table2", "embedded", table_of(7), command="a command"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_finished_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    run_table(store, 1)
    folder = run_table(store, 2)
    assert folder == store.root / "table2" / "embedded" / "2"
    record = json.loads((folder / "run.json").read_text())
    assert record["command"] == "python -m workflows.reproduce_table2 --seed 2"
    assert (record["status"], record["metrics"], record["commit"]) == ("finished", {"BLEU": 82.5}, commit())
    assert record["began"] < record["ended"]
    steps = {step.label: step.name for step in in_order([table_of(2)])}
    assert record["artifacts"] == steps
    assert record["seconds"].keys() == steps.keys()
    for place in (folder, folder.parent):
        assert (place / "report.html").read_text().startswith("python -m ")
    assert (folder.parent / "newest").read_text() == "2\n"
    assert not [path for path in store.root.rglob("*") if path.is_symlink()]
    moved = store.root.rename(tmp_path / "moved")
    assert {run.status for run in runs_in(Store(moved))} == {"finished"}


def test_the_same_table_continues_its_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_table(store, 1)
    run_table(store, 2)
    assert run_table(store, 1).name == "1"
    assert (tmp_path / "table2" / "embedded" / "newest").read_text() == "1\n"
    assert begin_run(store, "table2", "embedded", table_of(3)).folder.name == "3"
    assert {step.name for step in in_order([table_of(3)])} <= {*names_into(store)}


@pytest.mark.parametrize("how", ["until", "interrupt", "again"])
def test_a_finished_record_changes_only_by_work(how: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = (folder := run_table(store, 1)) / "run.json"
    before = record.read_bytes()
    with (
        suppress(KeyboardInterrupt),
        begun(store, "table2", "embedded", table_of(1), command="again", works=False) as run,
    ):
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "again":
            run.finish(store, table_of(1).published(store), {"BLEU": 1.0}, {})
        run.end(store, "stopped", "--until train")
    assert record.read_bytes() == before
    assert Run.read(tmp_path, folder).status == "finished"
    with suppress(KeyboardInterrupt), begun(store, "table2", "embedded", table_of(1), command="again", works=True):
        raise KeyboardInterrupt
    assert Run.read(tmp_path, folder).status == "interrupted"


def test_how_a_command_ended(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fail() -> None:
        with begun(store, "table2", "embedded", table_of(6), command="a command") as run:
            assert run.status == "running"
            make(store, table_of(6).inputs[0])
            raise KeyError("bleu")

    with pytest.raises(KeyError):
        fail()
    run = Run.read(tmp_path, tmp_path / "table2" / "embedded" / "1")
    assert (run.status, run.record.reason) == ("failed", "KeyError: 'bleu'")
    assert len(run.record.seconds) == 4
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (killed,) = (each for each in runs_in(store) if each.folder.name == "2")
    assert (killed.status, killed.record.status) == ("interrupted", "running")
    with begun(store, "table2", "embedded", table_of(7), command="a command") as run:
        assert run.record.began == killed.record.began
        make(store, table_of(7))
        run.finish(store, table_of(7).published(store), {}, {"en-de big": "no memory"})
    assert (run.folder, run.status, run.record.reason) == (killed.folder, "failed", "en-de big: no memory")
    assert (run.folder.parent / "report.html").is_file()


def test_a_parser_chosen_from_one_and_that_one_have_two_names(tmp_path: Path) -> None:
    profile = load_parsing_profile(overrides=["choice.dropouts=[0.1]"])
    request = requested("table4", profile, Common(store=str(tmp_path), plan=True))
    table = reproduce_table4.reproduction(profile, request).tabulate({})
    store, names = Store(tmp_path), {step.label: step.name for step in in_order([table])}
    run = begin_run(store, "table4", "embedded", table)
    assert not run.models(store)
    for name in names.values():
        store.folder(name).mkdir(parents=True)
    assert [*run.models(store).items()] == [
        ("supervised", store.folder(names["choose supervised"])),
        ("supervised-candidate", store.folder(names["average supervised candidate"])),
    ]


def test_two_steps_of_one_label_are_refused(tmp_path: Path) -> None:
    """A run could name only one of them, and `aiayn clean` would delete the other."""
    alike = [TRAIN("train en-de base", None, SeedSettings(seed=seed)) for seed in (1, 2)]
    with pytest.raises(UserError, match="train en-de base: two steps have this label"):
        begin_run(Store(tmp_path), "table2", "embedded", AVERAGE("average", *alike))
    assert not (tmp_path / "table2").exists()


def test_what_a_user_has_put_there_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A user's folder or link."""
    profile = tmp_path / "table2" / "embedded"
    (profile / "report.html").mkdir(parents=True)
    (profile / "backup").symlink_to("/mnt/a disk that is not mounted/backup")
    run_table(Store(tmp_path), 1)
    assert "report.html is a folder, so it is left" in caplog.text
    assert {entry.name for entry in profile.iterdir() if entry.is_symlink()} == {"backup"}


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    record = run_table(Store(tmp_path), 1) / "run.json"
    errors: list[UserError] = []
    for text in (record.read_text().replace("averaging-", "../averaging-"), '{"artifacts'):
        record.write_text(text)
        assert not [*runs_in(Store(tmp_path), errors.append)]
    assert ": '../averaging-" in str(errors[0]).partition("run.json cannot be read (artifacts.")[2]
    assert len(errors) == 2
    with pytest.raises(UserError, match=r"run\.json cannot be read .*; restore it, or remove its folder"):
        list(names_into(Store(tmp_path)))
