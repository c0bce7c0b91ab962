"""The optimizer (paper §5.3): Adam on one vector of parameters, and its learning rate.

    adam = Adam(weights_P, OptimizerConfig())
    rate = learning_rate(step=1, d_model=512, warmup_steps=4000)
    adam.step(gradient_P, rate, divisor=n_tokens, broken=norm_is_not_finite)

Shapes: P parameters.
"""

import torch
from torch import Tensor
from torch.optim import adam as functional

from model.config import OptimizerConfig


def learning_rate(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Returns scale · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), equation 3; `scale` is 1 in the paper.

    Raises ValueError if `step`, which counts from 1, is smaller.
    """
    if step < 1:
        raise ValueError(f"step is {step}; the schedule counts from 1")
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


class Adam:
    """The moments of a vector of parameters (Kingma and Ba 2015), and the steps that change both.

    A step is torch's fused kernel. `torch.optim.Adam` would call the same one, but its construction imports torch's
    compiler: 1.5 s and 800 modules in every process that trains.
    """

    def __init__(self, weights_P: Tensor, config: OptimizerConfig) -> None:
        self.weights_P, self.config = weights_P, config
        self.mean_P, self.square_P = torch.zeros_like(weights_P), torch.zeros_like(weights_P)
        self.n_steps = torch.zeros((), device=weights_P.device)
        """A number on the device, so that no step waits for it."""

    @torch.no_grad()
    def step(self, gradient_P: Tensor, rate: float | Tensor, divisor: Tensor, broken: Tensor) -> None:
        """Takes one step on `gradient_P / divisor`, or none if `broken` is 1; the gradient may be overwritten.

        `divisor` and `broken` are float32 scalars on the device. So may be the rate, in float64 on CPUs, so that all of
        them stay in place from step to step.
        """
        functional.adam(
            [self.weights_P],
            [gradient_P],
            [self.mean_P],
            [self.square_P],
            [],
            [self.n_steps],
            fused=True,
            grad_scale=divisor,
            found_inf=broken,
            amsgrad=False,
            beta1=self.config.beta_1,
            beta2=self.config.beta_2,
            lr=rate,
            weight_decay=0.0,
            eps=self.config.epsilon,
            maximize=False,
        )
