"""Calls a model with padded token ids, as tests write them down. Shapes: B batch, S source, T target, D = d_model."""

from torch import Tensor

from model.batch import Grid, grid
from model.transformer import Transformer


def hidden_of(model: Transformer, source_BS: Tensor, inputs_BT: Tensor) -> Tensor:
    """Returns hidden_BTD."""
    dtype = model.embedding.weight.dtype
    inputs = grid(inputs_BT, dtype)
    assert isinstance(inputs.sentences, Grid)
    return inputs.sentences.by_sentence(model(grid(source_BS, dtype), inputs))
