import pytest
import torch

from model.config import OptimizerConfig, TransformerConfig
from model.training_step import Adam, TrainingStep, learning_rate, linear_rate
from model.transformer import Transformer
from pipeline.settings import TrainingSettings


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1.746928e-07), (2, 3.493856e-07), (4000, 6.987712e-04), (100_000, 1.397542e-04)]
)
def test_base_schedule(step: int, rate: float) -> None:
    assert learning_rate(step, 512, 4000) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(("step", "share"), [(1, 0.01), (50, 0.5), (100, 1.0), (101, 0.99), (150, 0.5), (199, 0.01)])
def test_a_linear_schedule_falls_from_the_same_peak_to_zero(step: int, share: float) -> None:
    """Over 199 steps with a warm-up of 100: equation 3's rate up to its peak, then 1% less of it per step."""
    peak = learning_rate(100, 512, 100, 0.5)
    assert linear_rate(step, 512, 100, 199, 0.5) == pytest.approx(share * peak)
    model = Transformer(TransformerConfig(vocabulary_size=8, n_layers=1, d_model=512, d_ff=8))
    optimizer = OptimizerConfig(warmup_steps=100, learning_rate_scale=0.5, schedule="linear")
    trained = TrainingStep(model, optimizer, torch.float32, updates=199)
    assert trained.learning_rate(step) == linear_rate(step, 512, 100, 199, 0.5)


def test_a_schedule_without_steps_is_refused() -> None:
    model = Transformer(TransformerConfig(vocabulary_size=8, n_layers=1, d_model=8, d_ff=8))
    with pytest.raises(ValueError, match="warm-up takes 100 of 100 updates; a linear schedule needs more"):
        TrainingStep(model, OptimizerConfig(warmup_steps=100, schedule="linear"), torch.float32, updates=100)
    with pytest.raises(ValueError, match="counts from 1"):
        learning_rate(0, 512, 4000)
    with pytest.raises(ValueError, match="leave none of the 100 updates to fall in"):
        TrainingSettings(updates=100, optimizer=OptimizerConfig(warmup_steps=100, schedule="linear"))
    with pytest.raises(ValueError, match="schedule is 'cosine'; it must be 'inverse_sqrt' or 'linear'"):
        OptimizerConfig(schedule="cosine")


def test_a_field_added_later_is_no_part_of_the_identity_at_its_default() -> None:
    """So runs of earlier versions keep their fingerprints and recovery checkpoints."""
    assert "schedule" not in TrainingSettings().identity()["optimizer"]
    linear = TrainingSettings(optimizer=OptimizerConfig(schedule="linear"))
    assert linear.identity()["optimizer"]["schedule"] == "linear"


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
        reference.grad_scale, reference.found_inf = grad_scale, found_inf
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
