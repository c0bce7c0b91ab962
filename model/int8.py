"""Products with weights in int8, for decoding on CPUs (vector-wise quantization: Dettmers et al. 2022).

    quantize(model)              # in place; the model then computes with int8 weights
    y_NX = model.decoder[0].feed_forward.w_1(x_ND)

The weights of each output are integers from -127 to 127 times a scale of their own, chosen once. The inputs are
quantized as they come: each row has a scale too, that of its largest value, so what is computed for a sentence does not
depend on its neighbours. Sums are exact, in int32; results are float32. Everything but products with weights stays in
float32: the look-up of embeddings, norms, softmax, and the products of attention.

The kernels are oneDNN's, as torch calls them. Like those of bfloat16, they are compiled for every number of rows, which
is therefore rounded up (`model.on_cpu`).

Shapes: N rows (`model.on_cpu`), D inputs, X outputs.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.on_cpu import ROWS_MULTIPLE
from model.transformer import FeedForward, Transformer

LARGEST = 127
"""Weights are integers from minus this to this."""
SMALLEST = 1e-30
"""Stands for the largest number of a row of zeros. The quotient of LARGEST and it is far from infinity."""
OUTPUTS_MULTIPLE = 64
"""The projection to the vocabulary has its number of outputs rounded up to a multiple of this, by weights of 0."""


def is_available() -> bool:
    """Tells whether this processor multiplies int8 natively (VNNI, AMX).

    Others add pairs of products in 16 bits, which overflow.
    """
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(capabilities.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))


class Quantized(NamedTuple):
    """Inputs as unsigned integers: x_ND is (integers - zero) times a scale for each row."""

    integers_ND: Tensor
    """uint8, with filling rows at the end that may hold anything."""
    zero: int
    scale_N1: Tensor
    """float32, without filling rows."""


def quantized(x_ND: Tensor, *, nonnegative: bool = False) -> Quantized:
    """Quantizes rows to 1 to 255, where 128 is 0; or to 0 to 255 where no number is `nonnegative`."""
    largest, zero = (255, 0) if nonnegative else (LARGEST, LARGEST + 1)
    largest_N1 = (x_ND if nonnegative else x_ND.abs()).amax(dim=1, keepdim=True).clamp_(min=SMALLEST)
    n_rows = -(-len(x_ND) // ROWS_MULTIPLE) * ROWS_MULTIPLE
    integers_ND = torch.empty(n_rows, x_ND.shape[1], dtype=torch.uint8)
    # What is converted is positive, so cutting off its fraction rounds it to the nearest integer.
    integers_ND[: len(x_ND)] = (x_ND * (largest / largest_N1)).add_(zero + 0.5)
    return Quantized(integers_ND, zero, largest_N1.div_(largest))


class Int8Linear(nn.Module):
    """Computes x Wᵀ + b like the `nn.Linear` it is made from, with W and x in int8: x_ND -> y_NX.

    `nonnegative` says that no input is ever negative, which leaves one more bit for its size.
    """

    def __init__(self, weight_XD: Tensor, bias_X: Tensor | None = None, *, nonnegative: bool = False) -> None:
        super().__init__()
        self.out_features, self.in_features = weight_XD.shape
        self.nonnegative = nonnegative
        scale_X = weight_XD.abs().amax(dim=1).clamp_(min=SMALLEST).div_(LARGEST)
        integers_XD = (weight_XD / scale_X[:, None]).round_().to(torch.int8)
        self._packed, self._scale_X = torch.ops.onednn.qlinear_prepack(integers_XD, None), scale_X
        self._zero_X = torch.zeros(len(scale_X), dtype=torch.long)
        self._bias_X = None if bias_X is None else bias_X.detach().clone()

    def forward(self, x_ND: Tensor) -> Tensor:
        """Computes x_ND Wᵀ + b."""
        rows = quantized(x_ND, nonnegative=self.nonnegative)
        # The kernel knows a single scale for all rows.
        y_NX: Tensor = torch.ops.onednn.qlinear_pointwise(
            rows.integers_ND,
            1.0,
            rows.zero,
            self._packed,
            self._scale_X,
            self._zero_X,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        y_NX = y_NX[: len(rows.scale_N1)].mul_(rows.scale_N1)
        return y_NX if self._bias_X is None else y_NX.add_(self._bias_X)

    def add_to(self, residual_NX: Tensor, x_ND: Tensor) -> Tensor:
        """Returns the sum of `residual_NX` and what `forward` computes; it may overwrite the residual."""
        sum_NX: Tensor = self(x_ND).add_(residual_NX)
        return sum_NX


@torch.no_grad()
def quantize(model: Transformer) -> None:
    """Replaces the weights of a model that is on a CPU and in float32, layer by layer, keeping its embedding."""
    for module in model.modules():
        for name, linear in list(module.named_children()):
            if isinstance(linear, nn.Linear):
                nonnegative = isinstance(module, FeedForward) and linear is module.w_2
                setattr(module, name, Int8Linear(linear.weight, linear.bias, nonnegative=nonnegative))
    weight_VD = model.embedding.weight
    model.projection = Int8Linear(F.pad(weight_VD, (0, 0, 0, -len(weight_VD) % OUTPUTS_MULTIPLE)))
    for parameter in model.parameters():  # a view of a file's pages would keep those of the weights given up, too
        parameter.data = parameter.data.clone()
