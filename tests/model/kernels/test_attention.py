"""model.kernels.attention: Triton's kernels, interpreted on a CPU, compute the definition; compiled, they fit a GPU."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.kernels import attention
from tests.support.ptx import compiled

pytest.importorskip("triton", reason="Triton is for Linux only")
pytestmark = pytest.mark.spawns

ROWS, FULL, CAUSAL = 192, (-1, -1), (-1, 0)
ROW = st.integers(0, ROWS)


@pytest.fixture(scope="module")
def process() -> Iterator[Executor]:
    """Another process, in which Triton interprets kernels if it is imported there."""
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(1, get_context("spawn")) as executor:
        patch.setenv("TRITON_INTERPRET", "1")
        executor.submit(int).result()
        patch.undo()
        yield executor


def side(ends: list[int]) -> tuple[Tensor, Tensor]:
    """Returns sentences_N and offsets of sentences that end there; leftover rows are in one without rows."""
    sentences_N = torch.bucketize(torch.arange(ROWS), torch.tensor(ends), right=True)
    return sentences_N.int(), torch.tensor([0, *ends, ends[-1]]).int()


def results(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, sides: list[Tensor], reach: tuple[int, int]) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    x_NHV, _ = attention.packed_attention(*leaves, *sides, *reach)
    return [x_NHV.detach(), *torch.autograd.grad(x_NHV, leaves, grad)]


def interpreted(*arguments: object) -> list[Tensor]:
    attention.packed_attention.register_kernel("cpu")(attention.forward_by_kernels)
    attention.packed_attention_backward.register_kernel("cpu")(attention.backward_by_kernels)
    return results(*arguments)


@settings(max_examples=30)
@given(st.data())
def test_kernels_compute_the_definition(process: Executor, data: st.DataObject) -> None:
    """With gradients; queries, keys and values are views of one projection. Sentences may be empty, rows in none."""
    torch.manual_seed(1)
    ends = data.draw(st.lists(st.tuples(ROW, ROW), min_size=1, max_size=6))
    queries, keys = (side(sorted(each)) for each in zip(*ends, strict=True))
    sides = [x for both in zip(queries, data.draw(st.sampled_from([queries, keys])), strict=True) for x in both]
    reach = data.draw(st.sampled_from([FULL, CAUSAL]) | st.tuples(*[st.integers(-1, 70)] * 2))
    n_heads, d_k, d_v = data.draw(st.tuples(st.integers(1, 3), *[st.sampled_from([1, 9, 16, 64, 100])] * 2))
    dtype, tolerance = data.draw(st.sampled_from([(torch.float32, 1e-5), (torch.float16, 5e-3)]))
    widths = [n_heads * width for width in (d_k, d_k, d_v)]
    views = [x.unflatten(1, (n_heads, -1)) for x in torch.randn(ROWS, sum(widths)).to(dtype).split(widths, 1)]
    grad = torch.randn(ROWS, n_heads, d_v).to(dtype)
    found = process.submit(interpreted, *views, grad, sides, reach).result()
    expected = results(*[*(x.double() for x in (*views, grad)), sides, reach])
    for x, reference in zip(found, expected, strict=True):
        size, error = reference.norm(dim=2), (x.double() - reference).norm(dim=2)
        assert (error <= tolerance * (size + size.mean() + d_v**0.5)).all()  # gradients may be 0, of terms of √d_v


def far_apart_as_close(file: Path) -> bool:
    """Whether results are the same for rows 2^24 elements apart, the only ones in the file, and for the same closer."""
    rows = torch.from_file(str(file), shared=True, size=ROWS << 24, dtype=torch.float16).view(ROWS, -1)[:, :96]
    views = [x.unflatten(1, (2, 16)) for x in rows.normal_().split(32, 1)]
    (sentences_N, offsets), grad = side([64, ROWS]), torch.randn(ROWS, 2, 16).half()
    arguments = grad, [sentences_N, sentences_N, offsets, offsets], FULL
    close = interpreted(*(x.contiguous() for x in views), *arguments)
    return all(torch.equal(*pair) for pair in zip(interpreted(*views, *arguments), close, strict=True))


def test_rows_may_be_far_apart(process: Executor, tmp_path: Path) -> None:
    """As those of a large batch, whose elements an int32 cannot count."""
    assert process.submit(far_apart_as_close, tmp_path / "rows").result()


def test_the_operator_keeps_torchs_rules() -> None:
    """Its gradient and tracing; `tests/model/test_packed.py` shows that the definition is that of padded batches."""
    (sentences_N, offsets), x = side([150, 170, 171]), torch.randn(ROWS, 2, 16, requires_grad=True).double()
    torch.library.opcheck(attention.packed_attention, (x, x, x, sentences_N, sentences_N, offsets, offsets, -1, 0))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [9, 64, 128, attention.WIDEST])
def test_kernels_compute_the_definition_in_bfloat16(width: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu":  # which has the definition in their place, of all pairs of rows
        monkeypatch.setattr(attention, "CHECKED", 8)
    attention.check(device, 2, width, width)


@pytest.mark.parametrize("reach", [CAUSAL, FULL], ids=["causal", "full"])
@pytest.mark.parametrize(
    ("width", "products"),
    [(16, "wgmma.mma_async"), (64, "wgmma.mma_async"), (128, "mma.sync"), (attention.WIDEST, "mma.sync")],
)
def test_kernels_suit_an_h100(width: int, products: str, reach: tuple[int, int]) -> None:
    """Products on tensor cores, loads and stores of 16 bytes, and as many registers and as much memory as there is."""
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        for needs in executor.submit(compiled, width, reach).result().values():
            registers, stack_bytes, shared_bytes, found, *wide = needs
            assert (stack_bytes, found) == (0, products)
            assert registers < 255
            assert shared_bytes < 227 << 10
            assert all(wide)
