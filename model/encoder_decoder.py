"""Base class of the Transformer and its competitors (`model.architectures`).

Shapes: N rows, D = d_model, V vocabulary.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.batch import Rows
from model.config import PAD_ID, TransformerConfig

MIN_CUDA_IDS = 3073
"""Fewer ids than this are padded on CUDA (`look_up`)."""


class EncoderDecoder(nn.Module):
    """An encoder and a decoder; both embeddings and the pre-softmax projection share one matrix (§3.4).

    `forward` returns hidden states; `logits` or the loss (`model.loss`) projects them to the vocabulary.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)  # times √d_model: unit variance

    def reserve_positions(self, n_positions: int) -> None:
        """Prepares for sentences of up to `n_positions` tokens; call it before training or search."""

    def encode(self, source: Rows) -> Any:
        """Encodes sentences; returns the input of `decode`."""
        raise NotImplementedError

    def decode(self, inputs: Rows, encoder_output: Any) -> Tensor:
        """Runs the decoder on the targets shifted right: hidden_ND, before the pre-softmax projection."""
        raise NotImplementedError

    def forward(self, source: Rows, inputs: Rows) -> Tensor:
        """Encodes and decodes: hidden_ND, before the pre-softmax projection."""
        return self.decode(inputs, self.encode(source))

    def logits(self, hidden: Tensor) -> Tensor:
        """Projects hidden states (..., D) to logits (..., V) by the transposed embedding (§3.4)."""
        return F.linear(hidden, self.embedding.weight)

    def _scaled_embeddings(self, tokens_N: Tensor) -> Tensor:
        return look_up(self.embedding.weight, tokens_N) * math.sqrt(self.config.d_model)


def look_up(table_XD: Tensor, ids_N: Tensor) -> Tensor:
    """Looks up rows of a table, which may require gradients: x_ND."""
    # For few indices, CUDA's backward kernel has a race (github.com/pytorch/pytorch issues 187687, 199569).
    is_trained = table_XD.requires_grad and torch.is_grad_enabled()
    missing = MIN_CUDA_IDS - len(ids_N) if is_trained and ids_N.device.type == "cuda" else 0
    if missing <= 0:
        return F.embedding(ids_N, table_XD)
    return F.embedding(F.pad(ids_N, (0, missing), value=PAD_ID), table_XD)[: len(ids_N)]
