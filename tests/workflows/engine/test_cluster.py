"""workflows.engine.cluster: a stage's function in a process of its own, with a share of a GPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline.store.artifact import Context
from workflows.engine.cluster import on_gpu
from workflows.engine.dag import ROOT


def _describe(context: Context, word: str) -> dict[str, Any]:
    """Stands for a stage: says where it ran."""
    context.progress(1, 2, word)
    return {"folder": context.folder, "device": context.device, "word": word}


def test_function_gets_its_folder_and_the_device(ray_cluster: None, tmp_path: Path) -> None:
    """With no share of a GPU it computes on the CPU; its peak memory comes back with its result."""
    result, peak_bytes = on_gpu(0, _describe, Context(tmp_path), "pairs")
    assert result == {"folder": tmp_path, "device": "cpu", "word": "pairs"}
    assert 1e6 < peak_bytes < 1e11


def test_nodes_get_the_packages_and_no_folder_of_the_same_name(tmp_path: Path) -> None:
    """A user's folder `model`, with weights in it, stays where it is."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_text("weights")
    code = "import json, model; from workflows.engine.cluster import shipped_packages as s; print(json.dumps(s()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    packages = [Path(folder) for folder in json.loads(done.stdout)["py_modules"]]
    assert packages == [ROOT / "model", ROOT / "pipeline", ROOT / "workflows"]
    assert all((folder / "__init__.py").is_file() for folder in packages)
