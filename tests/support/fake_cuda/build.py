"""Compiles the device guard and runs a module under it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).with_name("guard.cpp")


def _build(folder: Path) -> Path:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler can build the device guard")
    if torch.version.cuda:
        pytest.skip("this build of torch has CUDA's own device guard")
    home, library = Path(torch.__file__).parent, folder / "guard.so"
    flags = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{home / 'include'}", f"-L{home / 'lib'}"]
    command = [compiler, *flags, str(SOURCE), "-o", str(library), "-lc10", "-ltorch_cpu"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"the device guard does not compile: {built.stderr[-500:]}")
    return library


def run(folder: Path, module: str) -> str:
    """Runs a module with the guard preloaded, which it compiles into `folder`, and returns its output."""
    library = _build(folder)
    libraries = Path(torch.__file__).parent / "lib"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
