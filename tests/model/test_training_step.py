from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from model import training_step
from model.batch import Batch, PackedSize
from model.config import PAD_ID, OptimizerConfig, TransformerConfig
from model.dropout import pair_keys
from model.loss import smoothed_cross_entropy
from model.training_step import TOLERANCE, Adam, Buffers, TrainingStep, learning_rate, results_agree, views
from model.transformer import Transformer
from tests.support.batches import random_sentences

TINY = TransformerConfig(50, n_layers=2, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, dropout=0.0)
FAST = OptimizerConfig(warmup_steps=10, learning_rate_scale=0.2)


def sentences(n: int, seed: int = 0, device: str = "cpu") -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    source_BS, target_BT = (random_sentences((torch.randint(1, 9, (n,)) + 1).tolist(), 50) for _ in range(2))
    return source_BS.to(device), target_BT.to(device)


def new_step(
    config: TransformerConfig = TINY, dtype: torch.dtype = torch.float32, compiled: bool = False, device: str = "cpu"
) -> TrainingStep:
    torch.manual_seed(1)
    return TrainingStep(Transformer(config).to(device), FAST, dtype, compiled)


@pytest.mark.gpu
def test_passes_are_one_big_batch(device: str) -> None:
    source_BS, target_BT = sentences(12, device=device)
    whole, parts = new_step(device=device), new_step(device=device)
    batch = Batch.padded(source_BS, target_BT, torch.float32)
    whole.accumulate(batch)
    hidden_ND, weight_VD = parts.model(batch.source, batch.inputs), parts.model.embedding.weight
    loss, _ = smoothed_cross_entropy(hidden_ND, weight_VD, batch.targets_N, FAST.label_smoothing)
    expected = torch.autograd.grad(loss, list(parts.model.parameters()))
    torch.testing.assert_close(views(whole.gradient_P, whole.master), list(expected), rtol=1e-4, atol=2e-5)
    for rows in (slice(0, 1), slice(1, 4), slice(4, 12)):
        source, target = source_BS[rows], target_BT[rows]
        width = int((target != PAD_ID).sum(1).max())
        batch = Batch.padded(source, F.pad(target[:, :width], (0, 2), value=PAD_ID), torch.float32)
        parts.accumulate(batch)
    assert (whole.losses > 0).all()
    torch.testing.assert_close(parts.losses, whole.losses, rtol=2e-6, atol=0)
    torch.testing.assert_close(parts.gradient_P, whole.gradient_P, rtol=1e-4, atol=2e-5)


@pytest.mark.gpu
def test_update_is_adam_on_the_mean_gradient(device: str) -> None:
    """Two updates equal Adam written out with equation 3's rates. Each returns both losses and its gradient's norm."""
    step = new_step(device=device)
    first = [p.detach().clone() for p in step.master.parameters()]
    m, v = [torch.zeros_like(p) for p in first], [torch.zeros_like(p) for p in first]
    for update in (1, 2):
        batch = Batch.padded(*sentences(5, update, device), torch.float32)
        step.accumulate(batch)
        n_tokens, losses = int((batch.targets_N != PAD_ID).sum()), step.losses.clone()
        gradients = views(step.gradient_P / n_tokens, step.master)
        *returned, norm = step.apply(update, n_tokens)
        assert torch.equal(torch.stack(returned), losses)
        assert norm.item() == pytest.approx(torch.cat([g.flatten() for g in gradients]).norm().item(), rel=1e-5)
        rate = learning_rate(update, 16, 10, 0.2)
        for i, g in enumerate(gradients):
            m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.98 * v[i] + 0.02 * g * g
            first[i] -= rate * (m[i] / (1 - 0.9**update)) / ((v[i] / (1 - 0.98**update)).sqrt() + 1e-9)
        assert not step.sums.any()
    for mine, theirs in zip(step.master.parameters(), first, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=2e-6)


@pytest.mark.gpu
def test_dropout_is_the_same_however_an_update_is_cut(device: str) -> None:
    """In one pass or in three, with other padding, and whatever was drawn before; another update has other masks."""
    source_BS, target_BT = sentences(12, device=device)
    steps = [new_step(replace(TINY, dropout=0.3, attention_dropout=0.2), device=device) for _ in range(3)]
    parts = ([slice(0, 12)], [slice(7, 12), slice(0, 1), slice(1, 7)], [slice(0, 12)])
    for step, update, slices in zip(steps, (7, 7, 8), parts, strict=True):
        torch.manual_seed(update + len(slices))
        keys_B = pair_keys(3, update, torch.arange(12)).to(device)
        for rows in slices:
            source_BX, target_BX = F.pad(source_BS[rows], (0, len(slices)), value=PAD_ID), target_BT[rows]
            step.accumulate(Batch.padded(source_BX, target_BX, torch.float32).keyed(keys_B[rows]))
    whole, cut, other = (step.gradient_P for step in steps)
    torch.testing.assert_close(whole, cut, rtol=1e-4, atol=2e-5)
    assert not torch.allclose(whole, other, rtol=0.1)


@pytest.mark.gpu
def test_bfloat16_copy_stays_close_to_float32(device: str) -> None:
    exact, copy = new_step(device=device), new_step(dtype=torch.bfloat16, device=device)
    assert next(copy.model.parameters()).dtype == torch.bfloat16
    assert next(copy.master.parameters()).dtype == torch.float32
    batch = sentences(40, device=device)
    copy.model.embedding.weight.grad = torch.full_like(copy.model.embedding.weight, 1e6)  # of a pass out of memory
    copy.discard()
    for update in range(1, 31):
        for step in (exact, copy):
            step.accumulate(Batch.padded(*batch, step.dtype))
        g, h = (step.gradient_P.clone() for step in (exact, copy))
        if update == 1:
            first = exact.losses[0].item()
            assert F.cosine_similarity(g, h, dim=0) > 0.99
            assert abs(h.norm() / g.norm() - 1) < 0.03
        losses = [step.apply(update, int((batch[1] != PAD_ID).sum()))[0].item() for step in (exact, copy)]
    assert losses[0] < 0.8 * first
    assert abs(losses[1] / losses[0] - 1) < 0.02


@pytest.mark.gpu
def test_each_gradient_of_a_large_pass_is_close_to_float32(device: str) -> None:
    """A sum over these 4,000 rows in bfloat16 would stop growing after 256 equal terms."""
    exact, copy = (new_step(replace(TINY, d_model=32), each, device=device) for each in (torch.float32, torch.bfloat16))
    for step in (exact, copy):
        step.accumulate(Batch.padded(*sentences(800, device=device), step.dtype))
    for g, h in zip(*(views(step.gradient_P, step.master) for step in (exact, copy)), strict=True):
        assert (h - g).norm() < 0.1 * g.norm()


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_layers_are_the_plain_ones_in_bfloat16(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as close to float32 as the plain ones, and no layer is recompiled so often that torch stops.

    The first batch has S = T, so that the compiler may take the two for one number; then they differ, then there is a
    single sentence; at last the model is evaluated without gradients, as in validation.
    """
    torch._dynamo.reset()
    monkeypatch.setattr("torch._dynamo.config.fail_on_recompile_limit_hit", True)
    config = replace(TINY, d_model=32, d_ff=64, d_k=16, d_v=16)
    plain = new_step(config, torch.bfloat16, device=device)
    compiled = new_step(config, torch.bfloat16, compiled=True, device=device)
    exact = new_step(config, device=device)
    for n, source_length, target_length in ((20, 18, 18), (30, 21, 17), (1, 9, 12)):
        source_BS, target_BT = (torch.randint(4, 50, (n, s), device=device) for s in (source_length, target_length))
        for step in (plain, compiled, exact):
            step.accumulate(Batch.padded(source_BS, target_BT, step.dtype))
        torch.testing.assert_close(plain.losses, compiled.losses, rtol=5e-3, atol=0)
        error, compiled_error = ((step.gradient_P - exact.gradient_P).norm() for step in (plain, compiled))
        assert error < 0.1 * exact.gradient_P.norm()
        assert compiled_error < 1.3 * error
        for step in (plain, compiled, exact):
            step.discard()
    for step in (plain, compiled):
        step.model.eval()
    with torch.no_grad():
        losses = [step.loss(Batch.padded(source_BS, target_BT, step.dtype)) for step in (plain, compiled)]
    torch.testing.assert_close(*losses, rtol=5e-3, atol=0)


# CUDA graphs, as far as testable without a GPU: in-place buffers, the check, and a step without a graph.

PACKED = TransformerConfig(40, n_layers=1, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=4, dropout=0.1)
SIZE = PackedSize.of(most_tokens=40, most_pairs=9, longest=11)


def batch_of(n_pairs: int, size: PackedSize = SIZE, update: int = 1) -> Batch:
    torch.manual_seed(n_pairs)
    keys_B = pair_keys(0, update, torch.arange(n_pairs))
    return Batch.packed(torch.randint(4, 40, (n_pairs, 4)), torch.randint(4, 40, (n_pairs, 4)), size).keyed(keys_B)


def tensors(batch: Batch) -> list[Tensor]:
    collected: list[Tensor] = []
    batch.map(lambda tensor: (collected.append(tensor), tensor)[1])
    return collected


def packed_step(dtype: torch.dtype = torch.bfloat16) -> TrainingStep:
    torch.manual_seed(0)
    return TrainingStep(Transformer(PACKED), OptimizerConfig(), dtype, packed=True)


def test_buffers_refuse_a_batch_of_another_size() -> None:
    buffers = Buffers(batch_of(9), torch.device("cpu"))
    with pytest.raises(ValueError, match=r"a tensor of shape \(128,\), not \(64,\)"):
        buffers.fill(batch_of(9, SIZE._replace(n_rows=128)))
    with pytest.raises(ValueError, match=r"a tensor of shape \(1,\), not"):
        buffers.fill(batch_of(9).map(lambda tensor: tensor[:1]))


def test_a_step_in_its_buffers_computes_the_batch_in_them() -> None:
    inside, outside = packed_step(), packed_step()
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
    exact, rounded = packed_step(torch.float32), packed_step()
    for step in (exact, rounded):
        step.accumulate(batch_of(9))
    assert results_agree(rounded.gradient_P, rounded.gradient_P * (1 + TOLERANCE / 2))
    assert results_agree(exact.gradient_P, exact.gradient_P.bfloat16().float())
    for batch in (batch_of(9, update=2), batch_of(8)):
        other = packed_step()
        other.accumulate(batch)
        assert not results_agree(rounded.gradient_P, other.gradient_P)
    nothing = torch.zeros_like(rounded.gradient_P)
    assert not results_agree(rounded.gradient_P, nothing)
    assert not results_agree(nothing, rounded.gradient_P)
    assert not results_agree(nothing + torch.nan, nothing + torch.nan)


def test_a_recording_that_fails_after_the_backward_pass_leaves_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels have not run on a GPU, so the gradients left by autograd are not any batch's."""

    def fail_late(_: Callable[[Batch], None], batch: Batch) -> None:
        tried.loss(batch)[0].backward()
        raise RuntimeError("operation not permitted when stream is capturing")

    tried, untried = packed_step(), packed_step()
    monkeypatch.setattr(training_step, "Captured", fail_late)
    with pytest.raises(RuntimeError, match="capturing"):
        tried.capture([batch_of(9), batch_of(1)])
    assert not tried.captured
    for step in (tried, untried):
        step.accumulate(batch_of(7))
    assert torch.equal(tried.sums, untried.sums)


def test_nothing_is_computed_eagerly_beside_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph keeps the memory of a pass, so on a full card there is none for a second."""
    tried, calls = packed_step(), list[str]()
    add = tried._add

    def recorded(_: Callable[[Batch], None], batch: Batch) -> Callable[[Batch], None]:
        calls.append("recorded")
        return lambda batch: calls.append("graph") or add(batch)

    monkeypatch.setattr(training_step, "Captured", recorded)
    monkeypatch.setattr(tried, "_add", lambda batch: calls.append("eager") or add(batch))
    tried.capture([batch_of(9), batch_of(1)])
    assert calls == ["eager", "eager", "recorded", "graph", "graph"]
    assert tried.captured


@pytest.mark.gpu
def test_a_graph_computes_what_its_kernels_do(device: str) -> None:
    if device == "cpu":
        pytest.skip("CUDA graphs need a GPU")
    config = replace(PACKED, d_model=32, d_k=16, d_v=16, n_heads=2)
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


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1.746928e-07), (2, 3.493856e-07), (4000, 6.987712e-04), (100_000, 1.397542e-04)]
)
def test_base_schedule(step: int, rate: float) -> None:
    assert learning_rate(step, 512, 4000) == pytest.approx(rate, rel=1e-6)
    with pytest.raises(ValueError, match="counts from 1"):
        learning_rate(0, 512, 4000)


@pytest.mark.gpu
def test_steps_are_those_of_torch(device: str) -> None:
    """Ten steps give the weights and moments of torch's fused Adam, bit by bit. A step with found_inf changes none."""
    config = OptimizerConfig()
    ours_P = torch.linspace(-1, 1, 1000, device=device)
    theirs_P = ours_P.clone().requires_grad_()
    adam = Adam(ours_P, config)
    reference = torch.optim.Adam([theirs_P], betas=(config.beta_1, config.beta_2), eps=config.epsilon, fused=True)
    generator = torch.Generator(device).manual_seed(1)
    rate_dtype = torch.float64 if device == "cpu" else torch.float32
    finite, grad_scale = torch.zeros((), device=device), torch.full((), 7.0, device=device)
    for number in range(10):
        gradient_P = torch.randn(1000, generator=generator, device=device)
        found_inf = torch.full_like(finite, float(number == 4))
        rate = torch.tensor(0.1 / (1 + number), device=device, dtype=rate_dtype)
        reference.param_groups[0]["lr"] = rate
        reference.__dict__.update(grad_scale=grad_scale, found_inf=found_inf)
        theirs_P.grad = gradient_P.clone()
        reference.step()
        before_P = ours_P.clone()
        adam.step(gradient_P, rate, grad_scale, found_inf)
        assert torch.equal(before_P, ours_P) == (number == 4)
    assert torch.equal(ours_P, theirs_P)
    state = reference.state[theirs_P]
    assert torch.equal(adam.mean_P, state["exp_avg"])
    assert torch.equal(adam.square_P, state["exp_avg_sq"])
    assert adam.n_steps.item() == state["step"].item() == 9
