"""CUDA graphs, as far as testable without a GPU: in-place buffers, the check, and a step without a graph."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model import training_step
from model.batch import Batch, PackedSize
from model.capture import TOLERANCE, Buffers, results_agree
from model.config import OptimizerConfig, TransformerConfig
from model.dropout import pair_keys
from model.training_step import TrainingStep
from model.transformer import Transformer

CONFIG = TransformerConfig(40, n_layers=1, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=4, dropout=0.1)
SIZE = PackedSize.of(most_tokens=40, most_pairs=9, longest=11)


def batch_of(n_pairs: int, size: PackedSize = SIZE, update: int = 1) -> Batch:
    torch.manual_seed(n_pairs)
    keys_B = pair_keys(0, update, torch.arange(n_pairs))
    return Batch.packed(torch.randint(4, 40, (n_pairs, 4)), torch.randint(4, 40, (n_pairs, 4)), size).keyed(keys_B)


def tensors(batch: Batch) -> list[Tensor]:
    collected: list[Tensor] = []
    batch.map(lambda tensor: (collected.append(tensor), tensor)[1])
    return collected


def new_step(dtype: torch.dtype = torch.bfloat16) -> TrainingStep:
    torch.manual_seed(0)
    return TrainingStep(Transformer(CONFIG), OptimizerConfig(), dtype, packed=True)


def test_buffers_refuse_a_batch_of_another_size() -> None:
    buffers = Buffers(batch_of(9), torch.device("cpu"))
    with pytest.raises(ValueError, match=r"a tensor of shape \(128,\), not \(64,\)"):
        buffers.fill(batch_of(9, SIZE._replace(n_rows=128)))
    with pytest.raises(ValueError, match=r"a tensor of shape \(1,\), not"):
        buffers.fill(batch_of(9).map(lambda tensor: tensor[:1]))


def test_a_step_in_its_buffers_computes_the_batch_in_them() -> None:
    inside, outside = new_step(), new_step()
    buffers = Buffers(batch_of(9), torch.device("cpu"))
    places = [tensor.data_ptr() for tensor in tensors(buffers.batch)]
    for batch in (batch_of(4), batch_of(7)):
        buffers.fill(batch)
        assert [tensor.data_ptr() for tensor in tensors(buffers.batch)] == places
        inside.accumulate(buffers.batch)
        outside.accumulate(batch)
        assert inside.losses.all()
        assert torch.equal(inside.sums, outside.sums)


def test_the_check_knows_rounding_from_another_result() -> None:
    exact, rounded = new_step(torch.float32), new_step()
    for step in (exact, rounded):
        step.accumulate(batch_of(9))
    assert results_agree(rounded.gradient_P, rounded.gradient_P * (1 + TOLERANCE / 2))
    assert results_agree(exact.gradient_P, exact.gradient_P.bfloat16().float())
    for batch in (batch_of(9, update=2), batch_of(8)):
        other = new_step()
        other.accumulate(batch)
        assert not results_agree(rounded.gradient_P, other.gradient_P)
    nothing = torch.zeros_like(rounded.gradient_P)
    assert not results_agree(rounded.gradient_P, nothing)
    assert not results_agree(nothing, rounded.gradient_P)
    assert not results_agree(nothing + torch.nan, nothing + torch.nan)


@pytest.mark.gpu
def test_a_device_without_graphs_goes_on_without(device: str) -> None:
    if device == "cuda":
        pytest.skip("this device has CUDA graphs")
    tried, untried = new_step(), new_step()
    with pytest.raises(RuntimeError, match="CUDAGraph"):
        tried.capture([batch_of(9), batch_of(1)])
    assert not tried.captured
    assert not tried.sums.any()
    for step in (tried, untried):
        step.accumulate(batch_of(7))
        step.apply(1, n_tokens=28)
    for mine, theirs in zip(tried.master.parameters(), untried.master.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_recording_that_fails_after_the_backward_pass_leaves_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels have not run on a GPU, so the gradients left by autograd are not any batch's."""

    def fail_late(_: Callable[[Batch], None], batch: Batch) -> None:
        tried.loss(batch)[0].backward()
        raise RuntimeError("operation not permitted when stream is capturing")

    tried, untried = new_step(), new_step()
    monkeypatch.setattr(training_step, "Captured", fail_late)
    with pytest.raises(RuntimeError, match="capturing"):
        tried.capture([batch_of(9), batch_of(1)])
    for step in (tried, untried):
        step.accumulate(batch_of(7))
    assert torch.equal(tried.sums, untried.sums)


@pytest.mark.gpu
def test_a_graph_computes_what_its_kernels_do(device: str) -> None:
    if device == "cpu":
        pytest.skip("CUDA graphs need a GPU")
    config = replace(CONFIG, d_model=32, d_k=16, d_v=16, n_heads=2)
    steps = []
    for captures in (False, True):
        torch.manual_seed(0)
        step = TrainingStep(Transformer(config).to(device), OptimizerConfig(), torch.bfloat16, packed=True)
        if captures:
            step.capture([batch_of(9), batch_of(1)])
            assert step.captured
        for update in (1, 2, 3):
            step.accumulate(batch_of(3 + update, update=update))
            step.apply(update, n_tokens=100)
        steps.append(step)
    plain, captured = ([*step.master.parameters()] for step in steps)
    for mine, theirs in zip(captured, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-5)
