"""Checks of what is installed and of the machine: libraries, devices, memory, limits."""

import os
import platform
import resource
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.filesize import decimal

from workflows.doctor.finding import Finding

PROJECT = "aiayn"
MISSING = "not installed"
APART = ("torch", "ray")
"""Libraries that have a line of their own."""
LEAST_MEMORY_BYTES, LITTLE_MEMORY_BYTES = 10**9, 4 * 10**9
"""Rules of thumb: a process that has loaded torch and Ray has 0.26 GB, and a workflow has several, beside Ray's own."""
LITTLE_SHARED_BYTES = 10**9
"""A rule of thumb: by default Ray wants three tenths of the memory there."""
FEW_FILES, ENOUGH_FILES = 4096, 8192
"""Below the first Ray warns, and asks for the second."""
SHARED = Path("/dev/shm")


def python() -> Finding:
    """Checks the version of Python against the project's."""
    wanted, running = metadata(PROJECT)["Requires-Python"], platform.python_version()
    if SpecifierSet(wanted).contains(running, prereleases=True):
        return Finding("python", "ok", f"{running} (the project takes {wanted})")
    return Finding("python", "fails", running, f"install Python {wanted} and make the environment again")


def libraries() -> Iterator[Finding]:
    """Checks the versions of all required libraries against the project's bounds."""
    needed = [one for one in map(Requirement, requires(PROJECT) or []) if not one.marker or one.marker.evaluate()]
    wrong = {one.name: found for one in needed if (found := _wrong(one))}
    for one in needed:
        if one.name in APART:
            yield _library(one.name, f"{_version(one.name)} (the project takes {one.specifier})", wrong)
    others = {name: found for name, found in wrong.items() if name not in APART}
    n_others = len([one for one in needed if one.name not in APART])
    yield _library("libraries", "; ".join(others.values()) or f"the other {n_others} are within their bounds", others)


def _library(name: str, found: str, wrong: dict[str, str]) -> Finding:
    if name in wrong or (name == "libraries" and wrong):
        return Finding(name, "fails", found, "run pip install --constraint constraints.txt --editable . again")
    return Finding(name, "ok", found)


def _wrong(wanted: Requirement) -> str:
    """Says what is wrong with a library; empty if nothing is."""
    installed = _version(wanted.name)
    if installed == MISSING:
        return f"{wanted.name} is not installed"
    if not wanted.specifier.contains(installed, prereleases=True):
        return f"{wanted.name} {installed} is not {wanted.specifier}"
    return ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return MISSING


def devices() -> Iterator[Finding]:
    """Checks the GPUs, if there are any, bfloat16, compilation and NCCL."""
    import torch

    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = "cuda" if n_gpus else "cpu"
    yield _gpus(n_gpus)
    yield _bfloat16(device)
    if n_gpus:
        yield _compiles(device)
        yield _nccl(n_gpus)


def _gpus(n_gpus: int) -> Finding:
    import torch

    from pipeline.hardware import device_name

    built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
    if n_gpus:
        names = ", ".join(dict.fromkeys(device_name(f"cuda:{i}") for i in range(n_gpus)))
        memory = decimal(torch.cuda.get_device_properties(0).total_memory)
        return Finding("gpu", "ok", f"{n_gpus} × {names}, {memory} each; {built}")
    if sorted(Path("/dev").glob("nvidia[0-9]*")):
        remedy = "install a torch that is built for CUDA, or a driver that this one takes (nvidia-smi shows it)"
        return Finding("gpu", "fails", f"there is an NVIDIA GPU that torch cannot use; {built}", remedy)
    return Finding("gpu", "ok", f"none; everything runs on {os.cpu_count()} CPU cores")


def _bfloat16(device: str) -> Finding:
    import torch

    from pipeline.hardware import bfloat16_speedup, compute_dtype, device_name, multiplies_bfloat16

    name = device_name(device)
    if not multiplies_bfloat16(device):
        remedy = "nothing to mend: trainings compute in float32, which takes longer"
        return Finding("bfloat16", "warning", f"not native on {name}", remedy)
    rate = f", {bfloat16_speedup():.2g} × the rate of float32" if device == "cpu" else ""
    chosen = "" if compute_dtype(device) is torch.bfloat16 else "; trainings compute in float32"
    return Finding("bfloat16", "ok", f"native on {name}{rate}{chosen}")


def _compiles(device: str) -> Finding:
    from pipeline.hardware import toy_layer_compiles

    if toy_layer_compiles(device):
        return Finding("torch.compile", "ok", "compiles a layer, forward and backward")
    remedy = "the warning above says why; it takes Triton, a C compiler and Python's header files (python3-dev)"
    return Finding("torch.compile", "warning", "fails, so layers are not compiled and trainings take longer", remedy)


def _nccl(n_gpus: int) -> Finding:
    import torch

    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        return Finding("nccl", "ok", ".".join(map(str, torch.cuda.nccl.version())))
    remedy = "install a torch that has NCCL, or train with one worker"
    return Finding("nccl", "fails" if n_gpus > 1 else "warning", "this torch has none", remedy)


def memory() -> Finding:
    """Checks how much memory is available to this process, container limits included."""
    available = _available_bytes()
    text = f"{decimal(available)} available"
    if available >= LITTLE_MEMORY_BYTES:
        return Finding("memory", "ok", text)
    remedy = f"end other programs, or take a machine with {decimal(LITTLE_MEMORY_BYTES)} or more"
    return Finding("memory", "fails" if available < LEAST_MEMORY_BYTES else "warning", text, remedy)


def _available_bytes() -> int:
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().split("\n")
        found = int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    with suppress(OSError, ValueError):  # "max" where there is no limit
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        found = min(found, limit - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    return found


def shared_memory(folder: Path = SHARED) -> Iterator[Finding]:
    """Checks the memory in which Ray keeps objects, on Linux."""
    if not folder.is_dir():
        return
    free = shutil.disk_usage(folder).free
    if free >= LITTLE_SHARED_BYTES:
        yield Finding(str(folder), "ok", f"{decimal(free)} free")
        return
    remedy = "make it larger (docker run --shm-size=4g); Ray keeps objects in files until then, which takes longer"
    yield Finding(str(folder), "warning", f"{decimal(free)} free", remedy)


def open_files() -> Finding:
    """Checks how many files a process may open; Ray raises the soft limit to the hard one by itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FEW_FILES:
        return Finding("open files", "ok", "unlimited" if hard == resource.RLIM_INFINITY else f"at most {hard:,}")
    return Finding("open files", "warning", f"at most {hard:,}", f"ulimit -n {ENOUGH_FILES} before the command")
