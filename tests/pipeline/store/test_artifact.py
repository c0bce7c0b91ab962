import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.artifacts import Checkpoint, Corpus, TrainingRun
from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact, publish
from pipeline.store.hashes import file_sha256
from pipeline.store.tensors import write_tensors
from tests.support.tiny_records import CONFIG, TRAINING


def _write(folder: Path) -> Artifact:
    (folder / "part").mkdir(exist_ok=True)
    (folder / "part" / "text.txt").write_text("ja\n")
    return Artifact(folder)


def test_publish_renames_a_whole_folder_with_its_manifest(tmp_path: Path) -> None:
    """What a killed attempt leaves is not published."""

    def littered(folder: Path) -> Artifact:
        (folder / ".temporary-1" / "parts").mkdir(parents=True)
        (folder / ".temporary-1" / "parts" / "late.txt").touch()
        return _write(folder)

    manifest = publish(tmp_path / "a", littered, {"stage": "test"}).manifest
    files = {"part/text.txt": {"bytes": 3, "sha256": file_sha256(tmp_path / "a/part/text.txt")}}
    assert (manifest["stage"], manifest["files"]) == ("test", files)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert {path.name for path in (tmp_path / "a").iterdir()} == {MANIFEST, "part"}
    (tmp_path / "b").symlink_to("nowhere")
    for name in "ab":
        with pytest.raises(UserError, match="already exists"):
            publish(tmp_path / name, lambda _: pytest.fail("it was built"), {})


@pytest.mark.parametrize("ours", ["ja\n", "nein\n"])
def test_who_is_late_keeps_what_another_published(tmp_path: Path, ours: str, caplog: pytest.LogCaptureFixture) -> None:
    """As on NFS, where a client may not see for a minute that an artifact is there."""

    theirs = publish(tmp_path / "of another", _write, {}).manifest

    def late(folder: Path) -> Artifact:
        _write(folder)
        (folder / "part" / "text.txt").write_text(ours)
        (tmp_path / "of another").rename(tmp_path / "a")
        return Artifact(folder)

    assert publish(tmp_path / "a", late, {}).manifest == theirs
    assert ("other content counts" in caplog.text) == (ours == "nein\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_flipped_bit_in_any_byte_and_every_truncation_is_detected(tmp_path: Path) -> None:
    folder = publish(tmp_path / "a", _write, {"stage": "test", "label": "Übung"}).folder
    artifact = Artifact(folder)
    (folder / "note").write_text("mine")
    assert artifact.damage() is None
    for name in ("part/text.txt", MANIFEST):
        path = folder / name
        whole = path.read_bytes()
        for place in range(len(whole)):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << place % 8
            path.write_bytes(flipped)
            assert name in str(artifact.damage()), (name, place)
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


def test_a_failed_stage_leaves_nothing_unless_it_resumes(tmp_path: Path) -> None:

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


def test_the_wrong_kind_of_folder_invalid_json_and_a_missing_figure_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus.json is missing: .* is not a Corpus"):
        _ = Corpus(tmp_path).pairs
    (tmp_path / "corpus.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        _ = Corpus(tmp_path).pairs
    run = TrainingRun(tmp_path)
    run.write_json("run.json", TRAINING.model_dump(mode="json", exclude={"segments"}))
    with pytest.raises(
        UserError,
        match=rf"^{tmp_path}/run\.json is not valid \(segments: Field required\); restore it, or move {tmp_path} ",
    ):
        run.load()


def test_the_key_of_another_version_is_ignored(tmp_path: Path) -> None:
    """A finished run stays readable if another version records more or fewer keys, at any depth."""
    run = TrainingRun(tmp_path)
    recorded = TRAINING.model_dump(mode="json")
    recorded["settings"]["packed_in_2027"] = True
    recorded["settings"]["optimizer"]["novel"] = 1
    recorded["segments"][0]["captured_by"] = "graph"
    run.write_json("run.json", {**recorded, "peak_memory_bytes": 5})
    assert run.load() == TRAINING
    del recorded["loop_s"], recorded["settings"]["optimizer"]["warmup_steps"]
    run.write_json("run.json", recorded)
    assert run.load() == TRAINING.model_copy(update={"loop_s": None})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 3}, "d_model is 3; sinusoids come in pairs"),
        ({"norm_first": True}, "norm_first: Unexpected keyword argument"),
    ],
)
def test_a_configuration_that_is_no_model_s_is_one_line(tmp_path: Path, fields: Any, message: str) -> None:
    """A field unknown to this version is an error, because it may change the meaning of the weights."""
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write_json("model.json", CONFIG.__dict__)
    assert checkpoint.config == CONFIG
    checkpoint.write_json("model.json", {**CONFIG.__dict__, **fields})
    with pytest.raises(UserError, match=message) as caught:
        _ = checkpoint.config
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("umask", [0o002, 0o077])
def test_weights_have_the_permissions_of_other_files(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_tensors(tmp_path / "model.safetensors", {"x": torch.ones(2)})
        (tmp_path / "model.json").write_text("{}")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes["model.safetensors"] == modes["model.json"] == 0o666 & ~umask
