"""What Triton's kernels need of an H100, without one; of attention's, a table:

    python -m tests.support.ptx

PYTHONPATH may name another Triton, and TRITON_PTXAS_PATH another ptxas.
"""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch

from model.kernels import attention

Needs = tuple[int, int, int, str, int, int]


def needs(kernel: Any) -> Needs:
    """Returns what a kernel that Triton has compiled takes: registers, bytes of stack for those that are spilled, bytes
    of shared memory, the instruction of products, and how many instructions load and how many store 16 bytes.
    """
    from triton import knobs

    with TemporaryDirectory() as folder:
        (file := Path(folder, "kernel.cubin")).write_bytes(kernel.asm["cubin"])
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    registers, stack_bytes = (int(re.findall(rf"{name}:(\d+)", said)[0]) for name in ("REG", "STACK"))
    products = " ".join(sorted({*re.findall(r"wgmma\.mma_async|mma\.sync", kernel.asm["ptx"])}))
    wide = [len(re.findall(rf"{access}\.global[\w.:]*\.v4", kernel.asm["ptx"])) for access in ("ld", "st")]
    return registers, stack_bytes, kernel.metadata.shared, products, wide[0], wide[1]


def use_h100() -> None:
    """Lets Triton compile for an H100."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    target = GPUTarget("cuda", 90, 32)
    zero = {"get_current_device": lambda: 0, "get_current_stream": lambda device: 0}
    driver.set_active(SimpleNamespace(get_current_target=lambda: target, **zero))


def compiled(width: int, reach: tuple[int, int]) -> dict[str, Needs]:
    """Compiles attention's kernels, by name, for the arguments of their calls: aligned, so a multiple of 16."""
    from triton.runtime import JITFunction

    found = {}

    def launcher(kernel: Any, grid: Any) -> Any:
        def launch(*arguments: Any, **sizes: Any) -> None:
            found[kernel.fn.__name__] = needs(kernel.warmup(*arguments, grid=(1,), **sizes))

        return launch

    use_h100()
    JITFunction.__getitem__ = launcher
    x_NHX, rows = torch.empty(64, 8, width, dtype=torch.bfloat16), torch.zeros(64, dtype=torch.int32)
    seen = rows, rows, rows, rows, *reach
    attention.backward_by_kernels(*[x_NHX] * 4, *attention.forward_by_kernels(*[x_NHX] * 3, *seen), *seen)
    return found


if __name__ == "__main__":
    for width in (16, 32, 64, 128, 256):
        for reach in ((-1, -1), (-1, 0)):
            for name, found in compiled(width, reach).items():
                print(f"| {width} | {reach} | {name}", *found, sep=" | ", end=" |\n")
