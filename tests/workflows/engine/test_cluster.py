"""workflows.engine.cluster: a stage's function in a process of its own, with a share of a GPU."""

from pathlib import Path
from typing import Any

from pipeline.store.artifact import Context
from workflows.engine.cluster import on_gpu


def _describe(context: Context, word: str) -> dict[str, Any]:
    """Stands for a stage: says where it ran."""
    context.progress(1, 2, word)
    return {"folder": context.folder, "device": context.device, "word": word}


def test_function_gets_its_folder_and_the_device(ray_cluster: None, tmp_path: Path) -> None:
    """With no share of a GPU it computes on the CPU; its peak memory comes back with its result."""
    result, peak_bytes = on_gpu(0, _describe, Context(tmp_path), "pairs")
    assert result == {"folder": tmp_path, "device": "cpu", "word": "pairs"}
    assert 1e6 < peak_bytes < 1e11
