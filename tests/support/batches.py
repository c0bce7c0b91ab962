"""Calls a model with padded token ids, as tests write them down. Shapes: B batch, S source, T target, D = d_model."""

from torch import Tensor

from model.batch import Rows
from model.transformer import EncoderDecoder


def hidden_of(model: EncoderDecoder, source_BS: Tensor, inputs_BT: Tensor, keys_B: Tensor | None = None) -> Tensor:
    """Returns hidden_BTD; `keys_B` are for dropout."""
    dtype = model.embedding.weight.dtype
    source, inputs = Rows.padded(source_BS, dtype), Rows.padded(inputs_BT, dtype)
    if keys_B is not None:
        source, inputs = source.keyed(keys_B, 0), inputs.keyed(keys_B, 1)
    return inputs.layout.by_sentence(model(source, inputs))
