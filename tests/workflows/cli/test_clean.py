"""workflows.cli.clean: deletes only unused artifacts, even beside processes that use the store or are killed."""

import shutil
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store import store as store_module
from pipeline.store.artifact import Artifact
from pipeline.store.build import Build
from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.lock_holder import lock_holder
from tests.support.s3_server import S3Server
from tests.support.tiny_dag import TEXT, TRAIN, half_make, listing, make, run_table, table_of
from workflows.cli.clean import clean, plan
from workflows.engine.dag import in_order
from workflows.engine.execution import StageError, _traceback_kept
from workflows.engine.plan import to_run
from workflows.runs import begin_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three finished runs of one text: two of the first profile, one of another."""
    root = tmp_path_factory.mktemp("made")
    run_table(Store(root), 1)
    run_table(Store(root), 2)
    run_table(Store(root), 3, "multi30k")
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Store:
    """A copy of these runs, with all links inside, in a folder whose name could be a pattern."""
    return Store(shutil.copytree(made, tmp_path / "my [ab]* runs?", symlinks=True))


def _names(store: Store) -> list[str]:
    return sorted(folder.name for folder in plan(store))


def _only(seed: int) -> list[str]:
    return sorted(step.name for step in in_order([table_of(seed)]) if step.stage is not TEXT)


def test_a_run_whose_folder_is_removed_goes(store: Store) -> None:
    """Only its own artifacts go; an input of others stays. Its command rebuilds only what was deleted."""
    assert _names(store) == []
    shutil.rmtree(store.root / "table2" / "embedded" / "1")
    shown, before = plan(store), listing(store.root)
    assert _names(store) == _only(1)
    labels = {"train en-de base", "average en-de base", "score en-de base", "table 2"}
    assert {folder.what for folder in shown} == labels
    assert listing(store.root) == before
    assert clean(store, shown) == shown
    assert not [path for path in listing(store.root) if any(name in path for name in _only(1))]
    for seed in (2, 3):
        assert to_run([table_of(seed)], store) == {}
    assert _names(store) == []
    assert set(make(store, table_of(1))) == labels


def test_tracebacks_of_steps_that_no_run_has_go(store: Store) -> None:
    """Such as a table's whose source was mended. A failed run's own stays until it is removed or succeeds."""
    table, run = table_of(9), begin_run(store, "table2", "embedded", table_of(9)).folder
    for name in (table.name, "tabulating-0123456789abcdef"):
        with pytest.raises(StageError), _traceback_kept(store.folder(name)):
            raise ZeroDivisionError
    (shown,) = plan(store)
    assert (shown.name, shown.what) == (".error-tabulating-0123456789abcdef.txt", "traceback of tabulating")
    assert clean(store, [shown]) == [shown]
    shutil.rmtree(run)
    assert _names(store) == [f".error-{table.name}.txt"]


def test_what_is_not_finished_stays(store: Store) -> None:
    """A run that has begun links everything it needs, including inputs and a partial training run."""
    table = table_of(9)
    run = begin_run(store, "table2", "embedded", table).folder
    text, training, averaged, *_ = in_order([table])
    make(store, averaged)
    store.folder(training.name).rename(store.scratch(training.name))
    assert _names(store) == []
    shutil.rmtree(run)
    assert _names(store) == sorted([averaged.name, store.scratch(training.name).name])
    assert text.name not in _names(store)


def test_what_was_set_aside_stays_until_it_is_built_again(store: Store) -> None:
    """It may be the only copy of weeks of work. A run needs it as long as its artifact is missing."""
    store.set_aside(next(step for step in in_order([table_of(1)]) if step.stage is TRAIN).name)
    (aside,) = store.artifacts.glob(".aside-*")
    assert _names(store) == []
    make(store, table_of(1))
    (shown,) = plan(store)
    assert (shown.name, shown.what) == (aside.name, "train en-de base, set aside as damaged")
    clean(store, [shown])
    assert not aside.exists()
    assert to_run([table_of(1)], store) == {}


def test_copies_and_what_nobody_reads_in_a_bucket_go(at_s3: S3Server, command_line: CommandLine) -> None:
    """What the bucket has, can be pulled again. Unfinished copies, what is not pushed, and a run that goes on, stay."""
    store = Store.at(f"{at_s3.bucket()}/runs")
    with Build.of(store, "training-0000000000000009").opened() as folder:
        (folder / "metrics.jsonl").write_text("line")
        assert _names(Store(store.root)) == []
    half_make(store, "training-0000000000000009")
    assert _names(Store(store.root)) == [folder.name]
    shutil.rmtree(store.artifacts / folder.name)
    make(store, table_of(1))
    text, training, *_ = in_order([table_of(1)])
    store.bucket.write(f"store/{text.name}/0123456789abcdef/00000.en", b"of a killed upload")
    store.bucket.write("store/.making-training-0000000000000009/metrics.jsonl", b"of a run")
    store.bucket.write("store/decoding-0000000000000009/0123456789abcdef/test.de", b"of an upload")
    left = [(one.name, one.size_bytes) for one in plan(store) if one.modified_s is None]
    assert left == [(f"store/{text.name}/0123456789abcdef", 18)]
    (pulled := store.artifacts / f".pulling-.records-{text.name}").mkdir()
    with lock_holder(store.artifacts / f".records-{text.name}"):
        assert pulled.name not in _names(store)
    assert pulled.name in _names(store)
    store.bucket.remove_folder(f"store/{training.name}")
    store_module._seen.clear()
    done = command_line.here("workflows.cli", "clean", "--store", store.uri, "--yes")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in store.artifacts.glob("[!.]*")] == [training.name]
    assert not store.bucket.sizes_bytes(left[0][0])
    assert store.bucket.sizes_bytes("store/.making-training-0000000000000009")
    assert Artifact(store.fetch(text.name)).damage() is None


def test_what_nobody_names_goes(store: Store) -> None:
    """A user's files stay."""
    make(store, table_of(9))
    (store.root / "table2" / "embedded" / "1" / "notes.txt").write_text("mine")
    store.folder("mine").mkdir()
    half_make(store, "decoding-0000000000000009")
    half_make(store, _only(2)[0])
    workspace = store.artifacts / ".tune-host-1-0"
    workspace.mkdir()
    gone = [*_only(9), ".making-decoding-0000000000000009", f".making-{_only(2)[0]}", workspace.name]
    assert _names(store) == sorted(gone)
    clean(store, plan(store))
    assert not [name for name in gone if store.folder(name).exists()]
    assert (store.root / "table2" / "embedded" / "1" / "notes.txt").is_file()
    assert store.folder("mine").is_dir()
    assert _names(store) == []


def test_nothing_goes_while_a_command_without_names_makes_something(store: Store) -> None:
    """Its inputs are unknown. A workspace always belongs to a linked workflow, and stays."""
    make(store, table_of(9))
    before = listing(store.root)
    with lock_holder(store.folder("heads-0000000000000001")) as holder:
        half = store.scratch("heads-0000000000000001")
        half.mkdir()
        with pytest.raises(UserError, match=rf"^pid {holder.pid} on host .* is building train here"):
            clean(store, plan(store))
        assert before.items() <= listing(store.root).items()
    with lock_holder(store.folder(".tune-host-1-0")):
        (store.artifacts / ".tune-host-1-0").mkdir()
        clean(store, plan(store))
        assert not store.folder(_only(9)[0]).exists()
        assert not half.exists()
        assert (store.artifacts / ".tune-host-1-0").is_dir()


def test_a_list_first_and_yes_deletes_it(store: Store, command_line: CommandLine) -> None:
    """Without --yes nothing changes. Sizes are those of the files. The second time nothing is left."""
    (store.folder(table_of(1).name) / "report.html").write_bytes(b"x" * 2_500_000)
    shutil.rmtree(store.root / "table2" / "embedded" / "1")
    root, before = str(store.root), listing(store.root)
    told = command_line.here("workflows.cli", "clean", "--store", root)
    assert told.returncode == 0
    assert [table_of(1).name, "table", "2"] in [line.split()[:3] for line in told.stdout.splitlines()]
    assert told.stdout.endswith("would free 2.5 MB in 4 folders; --yes deletes them\n")
    assert listing(store.root) == before
    done = command_line.here("workflows.cli", "clean", "--yes", "--store", root)
    assert done.returncode == 0
    assert done.stdout.endswith("\nfreed 2.5 MB in 4 folders\n")
    again = command_line.here("workflows.cli", "clean", "--yes", "--store", root)
    assert (again.returncode, again.stdout) == (0, f"nothing to delete in {root}\n")
    assert store.find(table_of(2).name)
    assert not store.find(table_of(1).name)
