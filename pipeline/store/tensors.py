"""Writes tensors as safetensors, with the permissions and the errors of any other file."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes a file. Raises OSError where safetensors wraps one in an error of its own, e.g. for a full disk."""
    path.touch()
    by_umask = path.stat().st_mode
    try:
        safetensors.torch.save_file(dict(tensors), path, metadata)  # replaces the file by one that only its owner reads
    except SafetensorError as error:
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise
    path.chmod(by_umask)
