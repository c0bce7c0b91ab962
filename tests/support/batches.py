"""Padded token ids, as tests write them down. Shapes: B batch, S source, T target, L length, D = d_model."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.batch import Rows
from model.config import END_ID, PAD_ID
from model.transformer import EncoderDecoder


def hidden_of(model: EncoderDecoder, source_BS: Tensor, inputs_BT: Tensor, keys_B: Tensor | None = None) -> Tensor:
    """Returns hidden_BTD; `keys_B` are for dropout."""
    dtype = model.embedding.weight.dtype
    source, inputs = Rows.padded(source_BS, dtype), Rows.padded(inputs_BT, dtype)
    if keys_B is not None:
        source, inputs = source.keyed(keys_B, 0), inputs.keyed(keys_B, 1)
    return inputs.layout.by_sentence(model(source, inputs))


def random_sentences(lengths: Iterable[int], vocabulary_size: int) -> Tensor:
    """Returns tokens_BL of sentences of these lengths, END_ID included."""
    rows = [torch.cat((torch.randint(4, vocabulary_size, (length - 1,)), torch.tensor([END_ID]))) for length in lengths]
    return pad_sequence(rows, batch_first=True, padding_value=PAD_ID)
