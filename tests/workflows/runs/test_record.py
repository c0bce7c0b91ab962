"""workflows.runs.record: what is read of commands that live, died, failed, or wrote what nobody can read."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store.store import LocalStore
from tests.support.tiny_runs import begun, make_run
from workflows.runs.record import read_records, runs_of

HOLDER = "import sys; from tests.support.tiny_runs import hold_a_run; hold_a_run(sys.argv[1])"


def test_a_killed_command_is_interrupted_and_a_living_one_runs(tmp_path: Path) -> None:
    """While its process lives the record says running; after kill -9 it is read as interrupted, in the step it was in.

    The same command then continues the run under its number.
    """
    store = LocalStore(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            (living,) = read_records(store)
            assert (living.state, living.pid) == ("running", process.pid)
            assert [step.state for step in living.steps] == ["running", "waiting"]
        finally:
            process.kill()
    (dead,) = read_records(store)
    assert dead.state == "interrupted"
    (run,) = runs_of([dead])
    assert run.where == "train en-de base"
    again = make_run(store)
    assert again.run == dead.run == "table2/embedded/1"
    (run,) = runs_of(read_records(store))
    assert [record.state for record in run.records] == ["finished", "interrupted"]
    assert (run.where, run.measured) == ("", again)


def test_errors_and_ctrl_c_are_told_apart(tmp_path: Path) -> None:
    """An error is kept in one line, as failed; ctrl-C is an interruption. Figures of an earlier command stay."""
    store = LocalStore(tmp_path)
    finished = make_run(store)
    with pytest.raises(UserError), begun(store):
        raise UserError("the disk is full;\nfree some space")
    failed = read_records(store)[0]
    assert (failed.state, failed.error) == ("failed", "the disk is full; free some space")
    with pytest.raises(KeyboardInterrupt), begun(store):
        raise KeyboardInterrupt
    (run,) = runs_of(read_records(store))
    assert [record.state for record in run.records] == ["interrupted", "failed", "finished"]
    assert run.measured == finished
    assert run.seconds == pytest.approx(sum(record.seconds for record in run.records))


def test_what_cannot_be_read_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broken record and one of a strange version are told by a warning; the others are listed."""
    store = LocalStore(tmp_path)
    made = make_run(store)
    store.write_record("records/20000101-000000-aaaaaa", {"id": "x"})
    (store.artifacts / "records" / "20000101-000000-bbbbbb.json").write_text("{")
    assert [record.id for record in read_records(store)] == [made.id]
    assert caplog.text.count("cannot be read") == 2


def test_a_folder_without_runs_has_none(tmp_path: Path) -> None:
    """Neither a folder that is not there nor an empty one is a mistake, and neither is made by asking."""
    assert read_records(LocalStore(tmp_path / "none")) == []
    assert not (tmp_path / "none").exists()
