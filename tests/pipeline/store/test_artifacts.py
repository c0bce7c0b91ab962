"""Published artifacts are complete and do not change."""

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact, Context, build_folder, publish
from pipeline.store.artifacts import Corpus
from pipeline.store.hashes import file_sha256
from pipeline.store.scratch import Written


def _write(folder: Path) -> Artifact:
    (folder / "part").mkdir(exist_ok=True)
    (folder / "part" / "text.txt").write_text("ja\n")
    return Artifact(folder)


def test_publish_renames_a_whole_folder_with_its_manifest(tmp_path: Path) -> None:
    """The artifact is at its final path, its hashes match its files, and no temporary folder remains."""
    artifact = publish(tmp_path / "a", _write, {"stage": "test"})
    assert artifact.folder == tmp_path / "a"
    manifest = artifact.manifest
    assert manifest["stage"] == "test"
    assert manifest["files"] == {"part/text.txt": {"bytes": 3, "sha256": file_sha256(tmp_path / "a/part/text.txt")}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    with pytest.raises(UserError, match="already exists"):
        publish(tmp_path / "a", _write, {})


def test_an_artifact_without_files_is_published(tmp_path: Path) -> None:
    """The artifact consists of its manifest only."""
    assert publish(tmp_path / "a", Artifact, {}).manifest["files"] == {}


def test_every_flipped_bit_and_every_truncation_is_detected(tmp_path: Path) -> None:
    """This holds for the manifest, too. Extra files are ignored, missing ones are damage. The error names the file."""
    folder = publish(tmp_path / "a", _write, {"stage": "test", "label": "Übung"}).folder
    artifact = Artifact(folder)
    (folder / "note").write_text("mine")
    assert artifact.damage() is None
    for name in ("part/text.txt", MANIFEST):
        path = folder / name
        whole = path.read_bytes()
        for bit in range(8 * len(whole)):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            assert name in str(artifact.damage()), (name, bit)
        for size in range(len(whole) - 1):  # the last byte of JSON is a newline
            path.write_bytes(whole[:size])
            assert name in str(artifact.damage()), (name, size)
        with pytest.raises(UserError, match=rf"/a is damaged: {name} .*; move it elsewhere and rebuild it"):
            artifact.check()
        path.unlink()
        assert artifact.damage() == f"{name} is missing"
        path.mkdir()
        assert name in str(artifact.damage())
        path.rmdir()
        path.write_bytes(whole)
    assert artifact.damage() is None
    artifact.check()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EACCES, errno.EMFILE, errno.EIO, errno.ETIMEDOUT])
def test_what_cannot_be_read_is_not_damaged(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary failure of a file server is a one-line error with a remedy, and no reason to rebuild the artifact."""
    artifact = publish(tmp_path / "a", _write, {})
    whole = Path.open

    def fail(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.name == "text.txt":
            raise OSError(code, os.strerror(code), str(path))
        return whole(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(UserError, match=r"/a/part/text\.txt cannot be read \(.*\); restore access .* same command"):
        artifact.damage()
    monkeypatch.undo()
    assert artifact.damage() is None


def test_a_process_that_lost_its_lock_publishes_and_removes_nothing(tmp_path: Path) -> None:
    """Neither the final path nor the temporary folder, which another process may be using by now, is touched."""
    with pytest.raises(UserError, match=r"^another command has taken over .*a because"):
        publish(tmp_path / "a", _write, {}, holds_lock=lambda: False)
    assert not (tmp_path / "a").exists()
    assert (build_folder(tmp_path / "a") / "part" / "text.txt").exists()


def test_files_of_tasks_are_published_with_the_hashes_that_they_had_there(tmp_path: Path) -> None:
    """Files have the stage's names, even if an earlier attempt left one that another process has open. The tasks' own
    folders are not published."""
    written: dict[str, Written] = {}

    def make(folder: Path) -> Artifact:
        context = Context(folder, added=written)
        (folder / "parts").mkdir()
        with (folder / "parts" / "1").open("w") as dead:
            with pickle.loads(pickle.dumps(context.scratch)).writing("parts/1", "train/2") as writing:
                for path in writing.paths:
                    path.write_text(path.name)
            dead.write("late")
        first, second = writing.written
        assert (first, second) == (Written("parts/1", 1, first.sha256), Written("train/2", 1, second.sha256))
        context.add(first, "00001.de")
        context.add(second)
        return _write(folder)

    files = publish(tmp_path / "a", make, {}, added=written).manifest["files"]
    assert {name: (tmp_path / "a" / name).read_text() for name in files} == {
        "00001.de": "1",
        "train/2": "2",
        "part/text.txt": "ja\n",
    }
    assert {name: described["sha256"] for name, described in files.items()} == {
        name: file_sha256(tmp_path / "a" / name) for name in files
    }
    assert not (tmp_path / "a" / "parts").exists()


def test_a_failed_stage_leaves_nothing_unless_it_resumes(tmp_path: Path) -> None:
    """An ordinary stage starts from scratch. One that resumes finds its files, and the next attempt completes them."""

    def fail(folder: Path) -> Artifact:
        _write(folder)
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError):
        publish(tmp_path / "a", fail, {})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError):
        publish(tmp_path / "a", fail, {}, resume=True)
    assert not (tmp_path / "a").exists()
    resumed = publish(tmp_path / "a", lambda folder: Artifact(folder), {}, resume=True)
    assert (resumed.folder / "part" / "text.txt").read_text() == "ja\n"


def test_the_wrong_kind_of_folder_and_invalid_json_are_reported_in_one_line(tmp_path: Path) -> None:
    """Opening a folder that is not a corpus is an error with the file and its fault."""
    with pytest.raises(UserError, match=r"corpus.json is missing: .* is not a Corpus"):
        _ = Corpus(tmp_path).pairs
    (tmp_path / "corpus.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        _ = Corpus(tmp_path).pairs
