"""workflows.runs.cleaning: what may go from a store and what may not, beside processes that use it or are killed."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store.store import LocalStore
from tests.support.lock_holder import lock_holder
from tests.support.tiny_dag import TEXT, dangling, half_make, listing, make, run_table, table_of
from tests.support.tiny_runs import begun
from workflows import stages
from workflows.engine.dag import in_order, to_run
from workflows.runs.cleaning import RESUMED, SILENT_S, clean, plan
from workflows.runs.names import NEWEST
from workflows.runs.record import read_records, runs_of

HOLDER = """
import sys, time
from pathlib import Path
from pipeline.store.store import LocalStore
from tests.support.tiny_dag import in_order, opening, recording, table_of
target = table_of(int(sys.argv[2]))
with recording(LocalStore(Path(sys.argv[1])), opening(target.fingerprint), in_order([target])):
    print("begun", flush=True)
    time.sleep(60)
"""
KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline.store.store import LocalStore
from workflows.runs import cleaning
def die(*given):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(cleaning, sys.argv[2], die)
store = LocalStore(Path(sys.argv[1]))
cleaning.clean(store, 1, cleaning.plan(store, 1))
"""
PAUSED = """
import sys
from pathlib import Path
from pipeline.store.store import LocalStore
from workflows.runs import cleaning
really = cleaning.set_aside
def pause(*given):
    print("closed", flush=True)
    sys.stdin.readline()
    return really(*given)
cleaning.set_aside = pause
store = LocalStore(Path(sys.argv[1]))
cleaning.clean(store, 1, cleaning.plan(store, 1))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three finished runs of one text: two with the first profile, one with another."""
    root = tmp_path_factory.mktemp("made")
    run_table(LocalStore(root), 1)
    run_table(LocalStore(root), 2)
    run_table(LocalStore(root), 3, "multi30k")
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> LocalStore:
    """A copy of these runs, which all links stay within."""
    return LocalStore(shutil.copytree(made, tmp_path / "runs", symlinks=True))


def _names(store: LocalStore, keep_last: int | None) -> list[str]:
    return [folder.name for folder in plan(store, keep_last).folders]


def _runs(store: LocalStore) -> list[str]:
    return [run.name for run in runs_of(read_records(store))]


def _only(seed: int) -> list[str]:
    """The artifacts of a run that no other has."""
    return sorted(step.name for step in in_order([table_of(seed)]) if step.stage is not TEXT)


def test_the_newest_runs_keep_all_they_need(store: LocalStore) -> None:
    """What the older one alone was made of goes, with its names and records; the newest stay cached as a whole.

    The text, which both were made from, stays; the older command makes again what it lacks, and no more.
    """
    found = plan(store, 1)
    assert sorted(folder.name for folder in found.folders) == _only(1)
    assert {(folder.what, folder.runs) for folder in found.folders} == {
        (label, ("table2/embedded/1",)) for label in ("train en-de base", "average en-de base", "table 2")
    }
    before = listing(store.root)
    assert plan(store, 1) == found
    assert listing(store.root) == before
    assert clean(store, 1, found).folders == found.folders
    assert _runs(store) == ["table2/multi30k/1", "table2/embedded/2"]
    assert not (store.root / "table2" / "embedded" / "1").exists()
    assert "embedded/1" not in (store.root / "index.html").read_text()
    assert not [path for path in listing(store.root) if any(name in path for name in _only(1))]
    assert not dangling(store.root)
    for seed in (2, 3):
        assert to_run([table_of(seed)], store) == []
    assert (store.root / "table2" / "embedded" / "models" / "en-de-base" / "report.html").is_file()
    again = plan(store, 1)
    assert (again.folders, again.runs) == ((), ())
    assert make(store, table_of(1)) == ["train en-de base", "average en-de base", "table 2"]


def test_inputs_count_that_only_manifests_name(store: LocalStore) -> None:
    """A record that lists the table alone keeps all behind it."""
    table = table_of(1)
    with begun(store, "brief", []) as recorder:
        recorder.made(table.name, {})
    assert not {*_names(store, 1)} & {step.name for step in in_order([table])}
    assert sorted(_names(store, 1)) == _only(2)


def test_the_run_that_newest_leads_to_stays(store: LocalStore) -> None:
    """Two interrupted commands came after it; the run before it goes."""
    for fingerprint in ("a", "b"):
        with pytest.raises(KeyboardInterrupt), begun(store, fingerprint, []):
            raise KeyboardInterrupt
    clean(store, 1, plan(store, 1))
    assert _runs(store) == ["table2/embedded/4", "table2/multi30k/1", "table2/embedded/2"]
    assert (store.root / "table2" / "embedded" / NEWEST).resolve().name == "2"
    assert not dangling(store.root)


def test_unused_is_what_no_record_names(store: LocalStore) -> None:
    """Artifacts without a run, and half-made folders; not a training that its command would continue."""
    make(store, table_of(9))
    half_make(store, "decoding-0000000000000009")
    half_make(store, _only(2)[0])
    workspace = store.artifacts / ".tune-host-1-0"
    workspace.mkdir()
    training = next(step for step in in_order([table_of(2)]) if step.stage.resumes)
    store.folder(training.name).rename(store.scratch(training.name))
    gone = [*_only(9), ".making-decoding-0000000000000009", f".making-{_only(2)[0]}", workspace.name]
    found = plan(store, None)
    assert sorted(folder.name for folder in found.folders) == sorted(gone)
    clean(store, None, found)
    assert not [name for name in gone if store.folder(name).exists()]
    assert store.scratch(training.name).is_dir()
    assert len(_runs(store)) == 3
    assert _names(store, None) == []


def test_the_stages_that_resume_are_known() -> None:
    """What they have left half-made is worth keeping."""
    every = [stage for stage in vars(stages).values() if isinstance(stage, stages.Stage)]
    assert {stage.name.partition(".")[0] for stage in every if stage.resumes} == {*RESUMED}


def test_a_running_workflow_keeps_its_cache(store: LocalStore) -> None:
    """Its command has taken up the older run; once it is killed, that run is as old as its command."""
    command = [sys.executable, "-c", HOLDER, str(store.root), "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        run_table(store, 2)
        run_table(store, 4)
        assert (sorted(_names(store, 1)), _names(store, None)) == (_only(2), [])
        clean(store, 1, plan(store, 1))
        assert to_run([table_of(1)], store) == []
        process.kill()
    clean(store, 1, plan(store, 1))
    assert _runs(store) == ["table2/embedded/3", "table2/multi30k/1"]
    assert not store.folder(_only(1)[0]).exists()


def test_nothing_goes_while_an_unrecorded_command_makes_something(store: LocalStore) -> None:
    """Which artifacts it reads is in no record. A workspace is always a recorded workflow's, and stays by itself."""
    make(store, table_of(9))
    before = listing(store.root)
    with lock_holder(store.folder("heads-0000000000000001")) as holder:
        half = half_made_locked(store)
        found = plan(store, None)
        assert half not in [folder.name for folder in found.folders]
        with pytest.raises(UserError, match=rf"^pid {holder.pid} on host .* is making train here"):
            clean(store, None, found)
        assert before.items() <= listing(store.root).items()
    with lock_holder(store.folder(".tune-host-1-0")):
        (store.artifacts / ".tune-host-1-0").mkdir()
        clean(store, None, plan(store, None))
        assert not store.folder(_only(9)[0]).exists()
        assert not store.folder(half).exists()
        assert (store.artifacts / ".tune-host-1-0").is_dir()


def half_made_locked(store: LocalStore) -> str:
    """The folder of what the holder of that lock makes."""
    folder = store.scratch("heads-0000000000000001")
    folder.mkdir()
    return folder.name


def test_a_single_stage_without_a_lock_is_given_time(store: LocalStore) -> None:
    """`aiayn average --out` into the store: what was written a moment ago stays, and what was left there goes."""
    folder = half_make(store, "mine")
    assert _names(store, None) == []
    for path in (folder / "half", folder):
        os.utime(path, (time.time() - SILENT_S - 1,) * 2)
    assert _names(store, None) == [folder.name]
    (folder / "half").write_text("more")
    assert _names(store, None) == []


@pytest.mark.parametrize("before", ["set_aside", "write_index", "delete"])
def test_a_kill_leaves_a_store_that_works(store: LocalStore, before: str) -> None:
    """Before the renaming, the list, or the deletion: no link dangles, the newest is cached, the same call ends it."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(store.root), before], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not dangling(store.root)
    assert to_run([table_of(2)], store) == []
    aside = list(store.artifacts.glob(".deleted-*"))
    assert len(aside) == (0 if before == "set_aside" else 3)
    clean(store, 1, plan(store, 1))
    assert _runs(store) == ["table2/multi30k/1", "table2/embedded/2"]
    assert "embedded/1" not in (store.root / "index.html").read_text()
    assert not [name for name in listing(store.root) if name.startswith("store/.deleted") or _only(1)[0] in name]
    assert _names(store, 1) == _names(store, None) == []


def test_a_workflow_that_begins_meanwhile_waits_and_makes_anew(store: LocalStore) -> None:
    """Its record is opened once the folders are renamed, so it never counts on what is about to go."""
    command = [sys.executable, "-c", PAUSED, str(store.root)]
    made: list[str] = []

    def work() -> None:
        table = table_of(1)
        with begun(store, table.fingerprint, []):
            made.extend(step.label for step in to_run([table], store))

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "closed\n"
        assert store.find(_only(1)[0])
        workflow = threading.Thread(target=work)
        workflow.start()
        workflow.join(1)
        assert workflow.is_alive()
        process.communicate("\n")
        workflow.join(30)
    assert made == ["train en-de base", "average en-de base", "table 2"]


def test_a_users_file_stays(store: LocalStore) -> None:
    """In the folder of a run that goes, and beside it."""
    run = store.root / "table2" / "embedded" / "1"
    (run / "models" / "notes.txt").write_text("mine")
    (run / "own").symlink_to("/nowhere")
    (run.parent / "elsewhere").symlink_to("/nowhere")
    mine = store.folder("mine")
    mine.mkdir()
    for keep_last in (1, None):
        clean(store, keep_last, plan(store, keep_last))
    assert [path.name for path in run.rglob("*")] == ["models", "notes.txt"]
    assert (run.parent / "elsewhere").is_symlink()
    assert mine.is_dir()


def test_names_without_links_go_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files stand in for links, as on some network file systems, those of the newest go on leading there."""

    def refuse(*given: object, **more: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    store = LocalStore(tmp_path / "runs")
    run_table(store, 1)
    run_table(store, 2)
    newest = listing(store.root / "table2" / "embedded")
    clean(store, 1, plan(store, 1))
    left = listing(store.root / "table2" / "embedded")
    assert left == {name: text for name, text in newest.items() if name != "1" and not name.startswith("1/")}


def test_an_unreadable_record_stops_it(store: LocalStore) -> None:
    """Nobody knows what its run needs."""
    (store.artifacts / "records" / "20260101-000000-aaaaaa.json").write_text("{")
    with pytest.raises(UserError, match=r"aaaaaa\.json cannot be read, .*; remove it first"):
        plan(store, None)
