"""ConvS2S (Gehring et al. 2017, arXiv:1705.03122): gated convolutions, with attention in each decoder layer.

Sections cite that paper. Convolutions have KERNEL_WIDTH positions and `d_ff` channels; embeddings have width `d_model`
and are projected to and from `d_ff`. As in fairseq, attention values are scaled by √0.5 and the encoder's gradient by
1 / (2 · number of attentions). Weights are normalised (Salimans and Kingma 2016) and initialised to preserve the
variance of activations (§3.5). A convolution is a product with the concatenated inputs of its window; padding is zero.

Shapes: B sentences, L length, S source length, T target length, Q queries (positions or hypotheses), W hypotheses;
D = d_model, C = d_ff channels, X channels of a whole window, KERNEL_WIDTH · C.
"""

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from model.baselines.states import Source, StateCache, StatefulModel, apply_rowwise
from model.batch import Rows
from model.config import PAD_ID, TransformerConfig
from model.dropout import Dropout
from model.transformer import look_up

KERNEL_WIDTH = 3
"""Positions of a convolution's window; 3 for most of the paper's."""
EMBEDDING_STD = 0.1
"""Initial standard deviation of token and position embeddings (§3.5)."""
ROOT_HALF = math.sqrt(0.5)
"""Preserves the variance of a sum of two (§3.4)."""

Window = Callable[[int, Tensor], Tensor]
"""Returns the windows that end at the inputs of layer i."""


class DecoderLayer(nn.Module):
    """A gated convolution, attention to the source and a residual connection (§3.3)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.convolution = convolution(config)
        self.query = linear(config.d_ff, config.d_model)
        self.output = linear(config.d_model, config.d_ff)

    def forward(self, x_BQC: Tensor, windows_BQX: Tensor, embedded_BQD: Tensor, source: Source) -> Tensor:
        """Takes the layer's inputs, their windows and the embeddings added to queries: x_BQC."""
        gated_BQC = F.glu(apply_rowwise(self.convolution, windows_BQX))
        query_BQD = (apply_rowwise(self.query, gated_BQC) + embedded_BQD) * ROOT_HALF
        scores_BQS = query_BQD.to(source.keys_BSK.dtype) @ source.keys_BSK.transpose(1, 2)
        context_BQD = (source.mean(scores_BQS) * source.n_tokens_B11.sqrt()).to(x_BQC.dtype)
        return ((gated_BQC + apply_rowwise(self.output, context_BQD)) * ROOT_HALF + x_BQC) * ROOT_HALF


class Convolutional(StatefulModel):
    """A ConvS2S encoder and decoder."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        d_model, channels, layers = config.d_model, config.d_ff, range(config.n_layers)
        self.source_positions, self.target_positions = (nn.Embedding(config.max_positions, d_model) for _ in range(2))
        for table in (self.embedding, self.source_positions, self.target_positions):
            nn.init.normal_(table.weight, std=EMBEDDING_STD)
        self.encoder_input = linear(d_model, channels, dropout=config.dropout)
        self.encoder = nn.ModuleList(convolution(config) for _ in layers)
        self.encoder_output = linear(channels, d_model)
        self.decoder_input = linear(d_model, channels, dropout=config.dropout)
        self.decoder = cast("Sequence[DecoderLayer]", nn.ModuleList(DecoderLayer(config) for _ in layers))
        self.decoder_output = linear(channels, d_model)
        self.embedding_dropout = Dropout(config.dropout, "embedding", d_model)
        self.output_dropout = Dropout(config.dropout, "output", d_model)
        self.encoder_dropout, self.decoder_dropout = (
            cast("Sequence[Dropout]", nn.ModuleList(Dropout(config.dropout, f"{stack}.{i}", channels) for i in layers))
            for stack in ("encoder", "decoder")
        )

    def encode(self, source: Rows) -> Source:
        """Encodes sentences: keys are the last layer's outputs, values their sums with the embeddings (§3.3)."""
        tokens_BS, keys_BS = source.by_sentence()
        real_BS1 = (tokens_BS != PAD_ID)[:, :, None].to(self.embedding.weight.dtype)
        embedded_BSD = self._embedded(tokens_BS, self.source_positions, 0, keys_BS)
        x_BSC = apply_rowwise(self.encoder_input, embedded_BSD) * real_BS1
        for layer, dropout in zip(self.encoder, self.encoder_dropout, strict=True):
            around = KERNEL_WIDTH // 2
            windows_BSX = windows(F.pad(dropout(x_BSC, keys_BS), (0, 0, around, KERNEL_WIDTH - 1 - around)))
            x_BSC = (F.glu(apply_rowwise(layer, windows_BSX)) + x_BSC) * ROOT_HALF * real_BS1
        keys_BSD = apply_rowwise(self.encoder_output, x_BSC)
        if keys_BSD.requires_grad:  # scaled down, since it sums over all attentions (§3.4)
            keys_BSD.register_hook(lambda gradient: gradient / (2 * len(self.decoder)))
        return Source.of(tokens_BS, keys_BSD, (keys_BSD + embedded_BSD) * ROOT_HALF)

    def decode(self, inputs: Rows, encoder_output: Source) -> Tensor:
        """Runs the decoder on the targets shifted right: hidden_ND, before the pre-softmax projection."""
        tokens_BT, keys_BT = inputs.by_sentence()
        embedded_BTD = self._embedded(tokens_BT, self.target_positions, 0, keys_BT)

        def window(_: int, x_BTC: Tensor) -> Tensor:
            return windows(F.pad(x_BTC, (0, 0, KERNEL_WIDTH - 1, 0)))

        return inputs.rows_of(self._decode(embedded_BTD, encoder_output, window, keys_BT))

    def _decode(self, embedded_BQD: Tensor, source: Source, window: Window, keys_BQ: Tensor | None = None) -> Tensor:
        """Decodes queries; `window` returns the windows that end at the inputs of layer i: hidden_BQD."""
        x_BQC = apply_rowwise(self.decoder_input, embedded_BQD)
        for i, layer in enumerate(self.decoder):
            x_BQC = layer(x_BQC, window(i, self.decoder_dropout[i](x_BQC, keys_BQ)), embedded_BQD, source)
        return self.output_dropout(apply_rowwise(self.decoder_output, x_BQC), keys_BQ)

    def _embedded(self, tokens_BL: Tensor, table: nn.Embedding, first: int, keys_BL: Tensor | None = None) -> Tensor:
        """Adds positions, starting from `first`, to the embeddings and applies dropout (§3.1): x_BLD."""
        end, limit = first + tokens_BL.shape[1], len(table.weight)
        if end > limit:
            raise ValueError(f"a sentence has {end} tokens, but the learned positions end at {limit}")
        embedded_BLD = look_up(self.embedding.weight, tokens_BL.flatten()).unflatten(0, tokens_BL.shape)
        return self.embedding_dropout(embedded_BLD + table.weight[first:end], keys_BL)

    def first_states(self, batch: int) -> list[Tensor]:
        """Returns each decoder layer's zero inputs before position 0: (B, 1, KERNEL_WIDTH - 1, C) each."""
        shape = batch, 1, KERNEL_WIDTH - 1, self.config.d_ff
        return [self.embedding.weight.new_zeros(shape) for _ in self.decoder]

    def step(self, tokens_BW: Tensor, cache: StateCache) -> Tensor:
        """Decodes one position of every hypothesis and updates its states: hidden_BWD."""

        def window(i: int, x_BWC: Tensor) -> Tensor:
            inputs_BWKC = torch.cat((cache.states[i], x_BWC[:, :, None]), dim=2)
            cache.states[i] = inputs_BWKC[:, :, 1:]
            return inputs_BWKC.flatten(2)

        tokens_N1 = tokens_BW.flatten()[:, None]
        embedded_BWD = self._embedded(tokens_N1, self.target_positions, cache.length).view(*tokens_BW.shape, -1)
        return self._decode(embedded_BWD, cache.source, window)


def linear(n_inputs: int, n_outputs: int, *, gain: float = 1, dropout: float = 0) -> nn.Linear:
    """Returns a weight-normalised projection with weights of variance gain · (1 - dropout) / n_inputs (§3.5)."""
    layer = nn.Linear(n_inputs, n_outputs)
    nn.init.normal_(layer.weight, std=math.sqrt(gain * (1 - dropout) / n_inputs))
    nn.init.zeros_(layer.bias)
    return cast("nn.Linear", weight_norm(layer))


def convolution(config: TransformerConfig) -> nn.Linear:
    """Returns a gated convolution as a product with windows."""
    # A gate of 1/2 leaves a quarter of the variance.
    return linear(KERNEL_WIDTH * config.d_ff, 2 * config.d_ff, gain=4, dropout=config.dropout)


def windows(x_BLC: Tensor) -> Tensor:
    """Concatenates each window's inputs, first position first: (B, L - KERNEL_WIDTH + 1, X)."""
    n_windows = x_BLC.shape[1] - KERNEL_WIDTH + 1
    return torch.cat([x_BLC[:, first : first + n_windows] for first in range(KERNEL_WIDTH)], dim=2)
