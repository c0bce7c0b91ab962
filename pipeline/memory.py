"""This process's memory: its peak, as the operating system counts it, out-of-memory errors, and garbage collection.

Does not import torch, so that `--help` is fast.
"""

import gc
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.store.folders import HIDDEN


def peak_memory_bytes(device: str = "cpu") -> int:
    """Returns the peak resident memory; of a GPU, that of tensors. Both since `reset_peak_memory` or process start."""
    if device != "cpu":
        return int(sys.modules["torch"].cuda.max_memory_allocated(device))
    with suppress(OSError):  # Linux, whose ru_maxrss is inherited from the parent process
        lines = Path("/proc/self/status").read_text().split("\n")
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak_memory(device: str) -> None:
    """Forgets the peak of what this process has done before."""
    if device != "cpu":
        sys.modules["torch"].cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # Linux
        Path("/proc/self/clear_refs").write_text("5")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python's or torch's means that memory ran out.

    On a GPU that is only torch.OutOfMemoryError; "illegal memory access" and Triton's "out of resource: shared memory"
    are other faults. On a CPU torch raises a plain RuntimeError that names its allocator.
    """
    is_torchs = type(error).__name__ == "OutOfMemoryError" and type(error).__module__ == "torch"
    return isinstance(error, MemoryError) or is_torchs or "DefaultCPUAllocator" in str(error)


def gpu_snapshot(folder: Path, rank: int, again: Callable[[], object] = tuple) -> str:
    """Writes what holds a GPU's memory, while `again` runs out of it, to a file; returns an error's end, or ""."""
    if not (torch := sys.modules.get("torch")) or not torch.cuda.is_initialized():
        return ""
    try:  # a later attempt that succeeds does not publish it
        (there := folder / f"{HIDDEN}memory").mkdir(exist_ok=True)
    except OSError:  # the folder is on another node
        there = Path(tempfile.mkdtemp(prefix="aiayn-memory-"))
    file = there / f"{rank}.pickle"
    try:
        torch.cuda.memory._record_memory_history(max_entries=10_000, stacks="python")
        with suppress(MemoryError, RuntimeError):
            again()
        torch.cuda.memory._dump_snapshot(str(file))
        torch.cuda.memory._record_memory_history(enabled=None)
    except (OSError, RuntimeError):  # it must not replace the error that it explains
        return ""
    return f"; https://pytorch.org/memory_viz shows what held it, from {file}"


def release_gpu_memory() -> None:
    """Returns the GPU memory of deleted tensors to other processes. Does not import torch."""
    if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def garbage_frozen() -> Iterator[None]:
    """Disables the garbage collector, which would pause one worker while all others wait.

    In the body, `gc.collect()` only examines objects created there, in a few milliseconds.
    """
    was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
