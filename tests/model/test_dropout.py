import pytest
import torch

from model.encoder_decoder import Dropout


@pytest.mark.gpu
@pytest.mark.parametrize("p", [0.1, 0.3])
def test_drops_with_probability_p_and_keeps_the_mean(p: float, device: str) -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, 1001, device=device, requires_grad=True)
    dropped = Dropout(p).train()(x)
    share = (dropped == 0).double().mean().item()
    assert abs(share - p) < 5 * (p * (1 - p) / x.numel()) ** 0.5
    kept = dropped[dropped != 0]
    assert torch.equal(kept, kept[0].expand_as(kept))
    assert dropped.double().mean().item() == pytest.approx(1, abs=3e-3)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped)


@pytest.mark.gpu
def test_draws_are_independent_and_seeded(device: str) -> None:
    dropout, x = Dropout(0.3).train(), torch.ones(999, 1001, device=device)
    torch.manual_seed(1)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(1)
    assert torch.equal(dropout(x), first)
    kept = (first != 0).double() - 0.7
    apart = [kept.roll(distance, 1) for distance in range(1, 9)]
    for other in (kept.roll(1, 0), *apart, (second != 0).double() - 0.7):
        assert abs((kept * other).mean().item()) < 5 * 0.21 / x.numel() ** 0.5


def test_a_probability_that_rounds_to_1_keeps_something() -> None:
    torch.manual_seed(0)
    dropped = Dropout(1 - 1e-9).train()(torch.ones(1000, 1000))
    assert 0 < dropped.count_nonzero() < 50
    assert dropped.isfinite().all()


def test_evaluation_and_p_0_change_nothing() -> None:
    x = torch.randn(3, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
