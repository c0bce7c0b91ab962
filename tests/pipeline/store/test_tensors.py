import os
import stat
from pathlib import Path

import pytest
import torch

from pipeline.store.tensors import write_tensors


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
