"""The learning rate is compared with equation 3's values."""

import pytest

from model.schedule import learning_rate


@pytest.mark.parametrize(
    ("step", "rate"),
    [(1, 1.746928e-07), (2, 3.493856e-07), (4000, 6.987712e-04), (100_000, 1.397542e-04)],
)
def test_base_schedule(step: int, rate: float) -> None:
    """With d_model 512 and warmup 4000, the rate rises linearly to 4000, then falls with the inverse square root."""
    assert learning_rate(step, 512, 4000) == pytest.approx(rate, rel=1e-6)


def test_peak_is_where_the_branches_meet() -> None:
    """Both branches of the minimum meet at (d_model · warmup)^-0.5, at the end of warmup, where the rate peaks."""
    peak = learning_rate(300, 128, 300)
    assert peak == pytest.approx((128 * 300) ** -0.5)
    assert learning_rate(299, 128, 300) < peak > learning_rate(301, 128, 300)
    assert learning_rate(7, 128, 300, scale=2.0) == 2 * learning_rate(7, 128, 300)


def test_steps_count_from_one() -> None:
    """Step 0, which would divide by zero, is refused."""
    with pytest.raises(ValueError, match="counts from 1"):
        learning_rate(0, 512, 4000)
