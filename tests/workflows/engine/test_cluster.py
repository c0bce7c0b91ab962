"""workflows.engine.cluster: a stage's function in a process of its own, with a share of a GPU where there is one."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.store.artifact import Context
from workflows.engine.cluster import on_gpu


def _describe(context: Context, word: str) -> dict[str, Any]:
    """Stands for a stage: says where it ran."""
    context.progress(1, 2, word)
    return {"folder": context.folder, "device": context.device, "word": word}


def _fail(context: Context) -> None:
    raise UserError("the dev split is empty")


def test_function_gets_its_folder_and_the_device(ray_cluster: None, tmp_path: Path) -> None:
    """With no share of a GPU it computes on the CPU; its peak memory comes back with its result."""
    result, peak_bytes = on_gpu(0, _describe, Context(tmp_path), "pairs")
    assert result == {"folder": tmp_path, "device": "cpu", "word": "pairs"}
    assert 1e6 < peak_bytes < 1e11


def test_error_comes_back_as_it_was_raised(ray_cluster: None, tmp_path: Path) -> None:
    """A mistake of the user's is told in its own words."""
    with pytest.raises(UserError, match="the dev split is empty"):
        on_gpu(0, _fail, Context(tmp_path))
