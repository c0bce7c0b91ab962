"""The attention functions compared in §3.2.1, standalone or in every attention of a Transformer.

    x_BHLV = make_function("additive", n_heads=8, d_k=64)(q_BHLK, k_BHMK, v_BHMV, bias)
    model = use(Transformer(config), "additive")

Shapes: B batch, L query length, M key length, H heads, K = d_k, V = d_v; X = d_k, the hidden layer's width.
"""

import torch
from torch import Tensor, nn

from model.attention import MultiHeadAttention, PackedKeys, PackedLayout, ScaledDotProductAttention
from model.cpu import softmax
from model.transformer import Transformer
from pipeline.complexity.layer_types.sizes import AttentionFunction


class _PaddedAttention(ScaledDotProductAttention):
    """Base of functions for padded batches only; packed kernels compute scaled dot products."""

    def packed(self, q_NHK: Tensor, keys: PackedKeys, queries: PackedLayout) -> Tensor:
        """Raises NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} attention has no kernels for packed batches")


class DotProduct(_PaddedAttention):
    """softmax(Q Kᵀ) V (Luong et al. 2015)."""

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns x_BHLV."""
        return _weighted(q_BHLK @ k_BHMK.transpose(-1, -2), v_BHMV, bias)


class Additive(_PaddedAttention):
    """softmax(v · tanh(W q + U k)) V, with W, U and v per head (Bahdanau et al. 2014).

    For each query-key pair it stores the hidden layer's d_k values, where a product stores one.
    """

    def __init__(self, n_heads: int, d_k: int) -> None:
        super().__init__()
        self.w_HKX = nn.Parameter(_xavier(n_heads, d_k, d_k))
        self.u_HKX = nn.Parameter(_xavier(n_heads, d_k, d_k))
        self.v_HX1 = nn.Parameter(_xavier(n_heads, d_k, 1))

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns x_BHLV, computed in the dtype of the queries."""
        w_HKX, u_HKX, v_HX1 = (weight.to(q_BHLK.dtype) for weight in (self.w_HKX, self.u_HKX, self.v_HX1))
        q_BHL1X, k_BH1MX = (q_BHLK @ w_HKX).unsqueeze(3), (k_BHMK @ u_HKX).unsqueeze(2)
        hidden_BHLMX = (q_BHL1X + k_BH1MX).tanh_()
        scores_BHLM = (hidden_BHLMX.flatten(2, 3) @ v_HX1).view(hidden_BHLMX.shape[:-1])
        return _weighted(scores_BHLM, v_BHMV, bias)


def make_function(function: AttentionFunction, n_heads: int, d_k: int) -> ScaledDotProductAttention:
    """Builds the function for heads of width `d_k`: a module from q_BHLK, k_BHMK, v_BHMV and a bias to x_BHLV."""
    match function:
        case "additive":
            return Additive(n_heads, d_k)
        case "dot-product":
            return DotProduct()
        case "scaled dot-product":
            return ScaledDotProductAttention()


def use(model: Transformer, function: AttentionFunction) -> Transformer:
    """Replaces every attention function of a model; new parameters become the model's. Returns the model.

    Batches must be padded. Raises ValueError if the model has restricted attention or attention dropout, which these
    functions do not support.
    """
    if model.config.attention_window or model.config.attention_dropout:
        raise ValueError("attention_window and attention_dropout need the model's own attention; leave both at 0")
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            module.function = make_function(function, module.n_heads, module.d_k)
    return model


def _weighted(scores_BHLM: Tensor, v_BHMV: Tensor, bias: Tensor | None) -> Tensor:
    return softmax(scores_BHLM if bias is None else scores_BHLM.add_(bias)) @ v_BHMV


def _xavier(n_heads: int, n_inputs: int, n_outputs: int) -> Tensor:
    """Draws one matrix per head, initialised like the model's projections."""
    weight_HIO = torch.empty(n_heads, n_inputs, n_outputs)
    for weight_IO in weight_HIO:
        nn.init.xavier_uniform_(weight_IO)
    return weight_HIO
