"""`aiayn export` in a process of its own, and the Python code that it prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.store.artifacts import Checkpoint
from tests.support.lock_holder import lock_holder
from tests.support.tiny_checkpoint import make_checkpoint, make_corpus


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return make_checkpoint(tmp_path / "checkpoint", make_corpus(tmp_path / "corpus"))


def run(folder: Path, *arguments: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """Runs `aiayn export` in `folder`, after the Python statement `first`."""
    root = str(Path(__file__).parents[3])
    code = f"import sys; sys.path.insert(0, {root!r}); {first}\nfrom workflows.cli.main import main\nmain()"
    command = [sys.executable, "-c", code, "export", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_the_printed_code_translates(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The folder is published at a relative path with a space and a quote; the printed code runs unchanged."""
    pytest.importorskip("ctranslate2")
    done = run(tmp_path, "ctranslate2", "checkpoint", "--out", "the model's")
    assert (done.returncode, done.stderr) == (0, "")
    where, *lines = done.stdout.splitlines()
    assert where == "model: the model's; to use it in Python:"
    assert len(lines) == 3
    files = {path.name for path in (tmp_path / "the model's").iterdir()}
    exported = {"model.bin", "config.json", "shared_vocabulary.json", "joint.model", "model.json"}
    assert files == {*exported, "manifest.json"}
    manifest = json.loads((tmp_path / "the model's/manifest.json").read_text())
    assert set(manifest["files"]) == files - {"manifest.json"}
    translated = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert translated.stdout.strip()
    again = run(tmp_path, "ctranslate2", "checkpoint", "--out", "the model's")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    with lock_holder(tmp_path / "busy") as holder:
        busy = run(tmp_path, "ctranslate2", "checkpoint", "--out", "busy")
    assert busy.returncode == 2
    assert f"busy is being made by pid {holder.pid} on host" in busy.stderr
