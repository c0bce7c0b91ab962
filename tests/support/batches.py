"""Calls a model with padded token ids, as tests write them down. Shapes: B batch, S source, T target, D = d_model."""

from torch import Tensor

from model.attention import PaddedLayout
from model.batch import Rows
from model.encoder_decoder import EncoderDecoder


def hidden_of(model: EncoderDecoder, source_BS: Tensor, inputs_BT: Tensor) -> Tensor:
    dtype = model.embedding.weight.dtype
    inputs = Rows.padded(inputs_BT, dtype)
    assert isinstance(inputs.layout, PaddedLayout)
    return inputs.layout.by_sentence(model(Rows.padded(source_BS, dtype), inputs))
