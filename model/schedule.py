"""The learning rate schedule (paper §5.3, equation 3)."""


def learning_rate(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Returns scale · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5); `scale` is 1 in the paper.

    Raises ValueError if `step`, which counts from 1, is smaller.
    """
    if step < 1:
        raise ValueError(f"step is {step}; the schedule counts from 1")
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
