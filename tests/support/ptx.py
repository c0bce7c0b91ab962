"""What Triton's kernels need of an H100, by ptxas, and with what they compute there."""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from model.kernels import attention

FULL, CAUSAL = (-1, -1), (-1, 0)


class Needs(NamedTuple):
    """Of one kernel."""

    registers: int
    stack_bytes: int
    """Of registers that are spilled."""
    shared_bytes: int
    products: str
    wide_loads: int
    """Instructions that load 16 bytes."""
    wide_stores: int


def needs(kernel: Any) -> Needs:
    """Reads a kernel that Triton has compiled."""
    from triton import knobs

    with TemporaryDirectory() as folder:
        (file := Path(folder, "kernel.cubin")).write_bytes(kernel.asm["cubin"])
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    registers, stack_bytes = (int(re.findall(rf"{name}:(\d+)", said)[0]) for name in ("REG", "STACK"))
    ptx = kernel.asm["ptx"]
    products = " ".join(sorted({*re.findall(r"wgmma\.mma_async|mma\.sync", ptx)}))
    wide = [len(re.findall(rf"{access}\.global[\w.:]*\.v4", ptx)) for access in ("ld", "st")]
    return Needs(registers, stack_bytes, kernel.metadata.shared, products, *wide)


def compiled(width: int, reach: tuple[int, int]) -> dict[str, Needs]:
    """Compiles attention's kernels, by name.

    Pointers, strides and numbers of rows are multiples of 16, as those of a run are, and Triton's launcher notices.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from model.kernels import attention_triton

    x_NHX = torch.empty(64, 8, width)
    sizes = attention._sizes(x_NHX, x_NHX, *reach)
    options = {name: sizes.pop(name) for name in ("num_warps", "num_stages")}
    of_kernels = {}
    for name in ("forward", "backward"):
        kernel = getattr(attention_triton, name)
        kinds = {"sentences": "*i32", "offsets": "*i32", "lse": "*fp32", "scale": "fp32", "row": "i32", "head": "i32"}
        kinds |= {"rows": "i32"}
        types = {
            argument: "constexpr"
            if argument in sizes
            else next((kind for part, kind in kinds.items() if part in argument.split("_")), "*bf16")
            for argument in kernel.arg_names
        }
        constants = {(kernel.arg_names.index(argument),): value for argument, value in sizes.items()}
        aligned = [(i,) for i, kind in enumerate(types.values()) if kind == "i32" or kind.startswith("*")]
        source = ASTSource(kernel, types, constants, {key: [["tt.divisibility", 16]] for key in aligned})
        of_kernels[name] = needs(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options))
    return of_kernels
