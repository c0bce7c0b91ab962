"""model.kernels.attention: Triton's kernels, interpreted on a CPU, compute the definition; compiled, they fit a GPU."""

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model.kernels import attention

pytest.importorskip("triton", reason="Triton is for Linux only")
pytestmark = pytest.mark.spawns

ROWS = 192
SHORT, LONG, EMPTY = (1, 30, 2, 64, 1, 90), (150, 20, 1, 0, 21), (3, 60, 0, 2, 11)
"""Lengths of sentences: within blocks of 64 rows, across three of them, and fewer than there are rows."""


@pytest.fixture(scope="module")
def process() -> Iterator[Executor]:
    """Another process, in which Triton interprets kernels if it is imported there."""
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(1, get_context("spawn")) as executor:
        patch.setenv("TRITON_INTERPRET", "1")
        executor.submit(int).result()
        patch.undo()
        yield executor


def side(lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Returns sentences_N and offsets; leftover rows are in a sentence without rows."""
    ends = torch.tensor([0, *lengths, 0]).cumsum(0)
    sentences_N = torch.full((ROWS,), len(lengths))
    sentences_N[: ends[-1]] = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return sentences_N.int(), ends.int()


def results(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, sides: list[Tensor], reach: tuple[int, int]) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    x_NHV, _ = attention.packed_attention(*leaves, *sides, *reach)
    return [x_NHV.detach(), *torch.autograd.grad(x_NHV, leaves, grad)]


def interpreted(*arguments: object) -> list[Tensor]:
    attention.packed_attention.register_kernel("cpu")(attention.forward_by_kernels)
    attention.packed_attention_backward.register_kernel("cpu")(attention.backward_by_kernels)
    return results(*arguments)


@pytest.mark.parametrize(("d_k", "d_v"), [(16, 16), (9, 20), (128, 16)])
@pytest.mark.parametrize(
    ("queries", "keys", "reach"),
    [
        (SHORT, SHORT, (-1, -1)),
        (LONG, LONG, (-1, 0)),
        (LONG, LONG, (5, 3)),
        (LONG, (1, 60, 70, 0, 61), (-1, -1)),
        (EMPTY, (60, 5, 0, 1, 90), (-1, -1)),
    ],
    ids=["full", "causal", "neighbourhood", "cross", "leftover"],
)
def test_kernels_compute_the_definition(
    process: Executor, queries: tuple[int, ...], keys: tuple[int, ...], reach: tuple[int, int], d_k: int, d_v: int
) -> None:
    """In float32 against float64, with gradients; queries, keys and values are views of one projection."""
    torch.manual_seed(1)
    drawn = [torch.randn(ROWS, 2 * width) for width in (d_k, d_k, d_v)]
    views = [x.unflatten(1, (2, -1)) for x in torch.cat(drawn, 1).split([2 * d_k, 2 * d_k, 2 * d_v], 1)]
    (sentences_N, offsets_q), (sentences_M, offsets_k) = side(queries), side(keys)
    sides, grad = [sentences_N, sentences_M, offsets_q, offsets_k], torch.randn(ROWS, 2, d_v)
    found = process.submit(interpreted, *views, grad, sides, reach).result()
    expected = results(*[*(x.double() for x in (*views, grad)), sides, reach])
    for x, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(x.double(), reference, rtol=1e-4, atol=1e-5)


def test_the_operator_keeps_torchs_rules() -> None:
    """Its gradient and tracing; `tests/model/test_packed.py` shows that the definition is that of padded batches."""
    (sentences_N, offsets), x = side(LONG), torch.randn(ROWS, 2, 16, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(attention.packed_attention, (x, x, x, sentences_N, sentences_N, offsets, offsets, -1, 0))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [9, 64, 128, attention.WIDEST])
def test_kernels_compute_the_definition_in_bfloat16(width: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu":  # which has the definition in their place, of all pairs of rows
        monkeypatch.setattr(attention, "CHECKED", 8)
    attention.check(device, 2, width, width)


def compiled(width: int, reach: tuple[int, int]) -> dict[str, tuple[str, int]]:
    """Compiles the kernels for an H100, without one; returns PTX and bytes of shared memory.

    Pointers, strides and numbers of rows are multiples of 16, as those of a run are, and Triton's launcher notices.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from model.kernels import attention_triton

    x_NHX = torch.empty(64, 8, width)
    sizes = attention._sizes(x_NHX, x_NHX, *reach)
    options = {name: sizes.pop(name) for name in ("num_warps", "num_stages")}
    code = {}
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
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        code[name] = made.asm["ptx"], made.metadata.shared
    return code


@pytest.mark.parametrize("reach", [(-1, 0), (-1, -1)], ids=["causal", "full"])
@pytest.mark.parametrize(
    ("width", "products"),
    [(16, "wgmma.mma_async"), (64, "wgmma.mma_async"), (128, "mma.sync"), (attention.WIDEST, "mma.sync")],
)
def test_kernels_suit_an_h100(width: int, products: str, reach: tuple[int, int], tmp_path: Path) -> None:
    """Products on tensor cores, loads and stores of 16 bytes, and as many registers and as much memory as there is."""
    import triton

    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        code = executor.submit(compiled, width, reach).result()
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    for name, (text, shared_bytes) in code.items():
        (file := tmp_path / f"{name}.ptx").write_text(text)
        command = [ptxas, "-v", "-arch=sm_90a", file, "-o", tmp_path / name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        assert re.search(r"0 bytes spill stores, 0 bytes spill loads", said), said
        assert int(re.findall(r"Used (\d+) registers", said)[0]) < 255
        assert shared_bytes < 227 * 1024
        assert products in text
        assert re.search(r"ld\.global[\w.:]*\.v4", text)
        assert re.search(r"st\.global[\w.:]*\.v4", text)
