"""The learning rate (paper §5.3, equation 3)."""


def learning_rate(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), times `scale` (1 in the paper). Steps count from 1."""
    if step < 1:
        raise ValueError(f"step is {step}; the schedule counts from 1")
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
