"""workflows.runs.names: every run's folder leads into the store, and a name stands wherever a folder is asked for."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.store.store import LocalStore
from tests.support.tiny_runs import STEPS, begun, make_artifact, make_run
from workflows.runs.names import named_folder, publish_names

OTHER = replace(STEPS[1], label="average en-de big", folder="averaging-2")


def _model(path: str | Path) -> Path:
    return named_folder("average", Path(path), "model.safetensors")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory has a folder `runs` with two runs; only the newer one has a big model."""
    monkeypatch.chdir(tmp_path)
    store = LocalStore(tmp_path / "runs")
    make_run(store, "1")
    make_artifact(store, "averaging-2", {"model.safetensors": "other weights"})
    make_run(store, "2", steps=[*STEPS, OTHER])
    return store.root


def test_a_run_s_folder_leads_into_the_store(runs: Path) -> None:
    """Report, table, curves, models and the record are there, relative, for each run and for the newest."""
    for place in ("1", "2", "newest", ""):
        folder = runs / "table2" / "embedded" / place
        assert (folder / "report.html").read_text() == "<p>"
        assert (folder / "models" / "en-de-base" / "model.safetensors").read_text() == "weights"
        assert (folder / "trainings" / "en-de-base" / "run.json").is_file()
        assert (folder / "curves" / "en-de-base.jsonl").read_text() == '{"update": 1}\n'
        assert (folder / "record.json").is_file()
    links = [path for path in (runs / "table2").rglob("*") if path.is_symlink()]
    assert len(links) > 15
    assert not [path for path in links if os.path.isabs(os.readlink(path))]
    assert (runs / "table2" / "embedded" / "newest").resolve().name == "2"
    moved = runs.with_name("moved")
    runs.rename(moved)
    assert (moved / "table2" / "embedded" / "report.html").is_file()


def test_the_newest_is_the_one_that_was_finished_last(runs: Path) -> None:
    """Run 1 again makes it the newest, and what it has not got is gone; an interrupted one changes nothing."""
    profile = runs / "table2" / "embedded"
    table4 = make_artifact(LocalStore(runs), "tabulating-2b", {"extra.csv": "1"})
    record = replace(make_run(LocalStore(runs), "2", steps=[*STEPS, OTHER]), table=table4.name)
    publish_names(LocalStore(runs), record)
    assert (profile / "extra.csv").is_file()
    with pytest.raises(KeyboardInterrupt), begun(LocalStore(runs), "3"):
        raise KeyboardInterrupt
    assert (profile / "newest").resolve().name == "2"
    assert (profile / "3" / "models" / "en-de-base").is_dir()
    make_run(LocalStore(runs), "1")
    assert (profile / "newest").resolve().name == "1"
    assert not (profile / "extra.csv").is_symlink()
    assert _model("table2/embedded/2/en-de-big").name == "averaging-2"


def test_a_name_stands_for_a_folder(runs: Path) -> None:
    """With and without the kind, the number or `newest`; paths still work, and so do names behind another folder."""
    weights = runs / "store" / "averaging-1"
    for name in ("en-de-base", "models/en-de-base", "1/en-de-base", "newest/en-de-base", "1/models/en-de-base"):
        assert _model(f"table2/embedded/{name}") == weights
    assert _model("table2/embedded/1") == weights  # it has only one
    assert _model(runs / "table2/embedded/en-de-base") == weights
    assert _model("runs/table2/embedded/en-de-base") == weights
    assert _model("runs/store/averaging-1") == weights
    assert named_folder("train", Path("table2/embedded/en-de-base"), "run.json").name == "training-1"
    os.chdir(runs.parent.parent)
    assert _model(runs.relative_to(Path.cwd()) / "table2/embedded/en-de-big").name == "averaging-2"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("table2/embedded/en-de-bse", "or one of table2/embedded/en-de-base, "),
        ("table2/embeded/en-de-base", "table2/embedded/en-de-base"),
        ("table2/embedded", "table2/embedded/en-de-big"),  # it has two
        ("table2/embedded/1/en-de-big", "table2/embedded/en-de-big"),
        ("table2", "table2 is not a folder; name a folder that `aiayn average` made, or one of "),
        ("runs/store/training-1", "holds no model.safetensors; name a folder that `aiayn average` made"),
    ],
)
def test_a_wrong_name_is_one_line_with_names_that_are_near(runs: Path, name: str, message: str) -> None:
    """The line names what there is."""
    with pytest.raises(UserError) as caught:
        _model(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_any_runs_the_line_says_what_to_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before there were names."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        _model("model")
    assert str(caught.value) == "model is not a folder; name a folder that `aiayn average` made"


def test_a_damaged_folder_is_told_by_name(runs: Path) -> None:
    """A name does not get round the check of hashes."""
    (runs / "store" / "averaging-2" / "model.safetensors").write_text("OTHER weights")
    with pytest.raises(UserError, match=r"is damaged: model\.safetensors does not match its sha256"):
        _model("table2/embedded/en-de-big")


def test_what_a_user_has_put_there_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder in the place of a link is kept, with a warning; everything else is named."""
    mine = tmp_path / "table2" / "embedded" / "models"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    make_run(LocalStore(tmp_path))
    assert (mine / "notes.txt").read_text() == "mine"
    assert "models is not a link; it stays" in caplog.text
    assert (tmp_path / "table2" / "embedded" / "report.html").is_file()


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that hold the path stand in for folders, and copies for files.

    That symlinks are refused is what exFAT does; no file system without links can be mounted by a test.
    """

    def refuse(self: Path, target: Any, target_is_directory: bool = False) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    monkeypatch.chdir(tmp_path)
    store = LocalStore(tmp_path / "runs")
    make_run(store, "1")
    make_run(store, "2")
    profile = store.root / "table2" / "embedded"
    assert not [path for path in profile.rglob("*") if path.is_symlink()]
    assert (profile / "report.html").read_text() == (profile / "1" / "report.html").read_text() == "<p>"
    assert (profile / "newest").read_text() == "folder: 2\n"
    for name in ("en-de-base", "1/en-de-base", "newest/en-de-base", "models/en-de-base"):
        assert _model(f"table2/embedded/{name}") == store.root / "store" / "averaging-1"
