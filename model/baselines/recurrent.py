"""A recurrent model like GNMT (Wu et al. 2016, arXiv:1609.08144): LSTM layers with additive attention.

The first encoder layer is bidirectional. The first decoder layer's output is the attention query, and the context is an
input of all layers above (§3 there). The query is taken at the same position, as in tensorflow/nmt's `gnmt_v2`: each
layer then runs over all positions in one call, where GNMT's query from the previous position forces one step at a time.
So there is no input feeding (Luong et al. 2015). Layers above the first have residual connections (§3.1 there). Dropout
applies to the inputs of each layer and the output of the last, never to recurrent connections (Zaremba et al. 2014).

`d_model` is the width of embeddings and `d_ff` of LSTM layers; the first encoder layer has half of it per direction.
The last layer's output is projected to `d_model`, since the vocabulary's matrix is shared.

Shapes: B sentences, L length, S source length, T target length, Q queries, W hypotheses of each; D = d_model, F = d_ff,
X any width.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.baselines.states import Source, StateCache, StatefulModel, apply_rowwise
from model.batch import Rows
from model.config import PAD_ID, TransformerConfig
from model.cpu import pad_rows
from model.dropout import Dropout

Run = Callable[[int, Tensor], Tensor]
"""Runs decoder layer i on its inputs."""


class AdditiveAttention(nn.Module):
    """Σ softmax(vᵀ tanh(W q + U h)) h (Bahdanau et al. 2015, arXiv:1409.0473, §A.1.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.w_query = nn.Linear(width, width, bias=False)
        self.w_key = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)

    def source(self, tokens_BS: Tensor, x_BSF: Tensor) -> Source:
        """Computes keys from the encoder's output."""
        return Source.of(tokens_BS, apply_rowwise(self.w_key, x_BSF), x_BSF)

    def forward(self, x_BQF: Tensor, source: Source) -> Tensor:
        """Attends from each query to its sentence: x_BQF."""
        query_BQF = apply_rowwise(self.w_query, x_BQF).to(source.keys_BSK.dtype)
        activation_BQSF = torch.tanh(query_BQF[:, :, None] + source.keys_BSK[:, None])
        scores_BQS = F.linear(activation_BQSF, self.v.weight.to(activation_BQSF.dtype)).squeeze(-1)
        return source.mean(scores_BQS).to(x_BQF.dtype)


class Recurrent(StatefulModel):
    """A GNMT-like encoder and decoder."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        d_model, width, above = config.d_model, config.d_ff, range(config.n_layers - 1)
        self.onward, self.backward_ = lstm(d_model, width // 2), lstm(d_model, width // 2)
        self.encoder = nn.ModuleList(lstm(width, width) for _ in above)
        self.attention = AdditiveAttention(width)
        decoder = nn.ModuleList([lstm(d_model, width), *(lstm(2 * width, width) for _ in above)])
        self.decoder = cast("Sequence[nn.LSTM]", decoder)
        self.output = nn.Linear(width, d_model)

        def dropouts(stack: str, n_places: int) -> "Sequence[Dropout]":
            places = (Dropout(config.dropout, f"{stack}.{i}", 2 * max(width, d_model)) for i in range(n_places))
            return cast("Sequence[Dropout]", nn.ModuleList(places))

        self.encoder_dropout = dropouts("encoder", config.n_layers)
        self.decoder_dropout = dropouts("decoder", config.n_layers + 1)
        """Of the inputs of each layer and, last, of the decoder's output."""

    def encode(self, source: Rows) -> Source:
        """Encodes sentences."""
        tokens_BS, keys_BS = source.by_sentence()
        x_BSD = self.encoder_dropout[0](self._embedded(tokens_BS), keys_BS)
        mirror_BS1 = mirror(tokens_BS)[:, :, None]
        mirrored_BSD = x_BSD.gather(1, mirror_BS1.expand_as(x_BSD))
        backwards_BSX = self.backward_(mirrored_BSD)[0]
        x_BSF = torch.cat((self.onward(x_BSD)[0], backwards_BSX.gather(1, mirror_BS1.expand_as(backwards_BSX))), dim=2)
        for i, layer in enumerate(self.encoder, 1):
            x_BSF = x_BSF + layer(self.encoder_dropout[i](x_BSF, keys_BS))[0]
        return self.attention.source(tokens_BS, x_BSF)

    def decode(self, inputs: Rows, encoder_output: Source) -> Tensor:
        """Runs the decoder on the targets shifted right: hidden_ND, before the pre-softmax projection."""
        tokens_BT, keys_BT = inputs.by_sentence()
        x_BTD = self._embedded(tokens_BT)
        return inputs.rows_of(self._decode(x_BTD, encoder_output, lambda i, x_BTX: self.decoder[i](x_BTX)[0], keys_BT))

    def _decode(self, x_BQD: Tensor, source: Source, run: Run, keys_BQ: Tensor | None = None) -> Tensor:
        """Decodes queries; `run` runs layer i: hidden_BQD."""
        x_BQF = run(0, self.decoder_dropout[0](x_BQD, keys_BQ))
        context_BQF = self.attention(x_BQF, source)
        for i in range(1, len(self.decoder)):
            x_BQF = x_BQF + run(i, self.decoder_dropout[i](torch.cat((x_BQF, context_BQF), dim=2), keys_BQ))
        return apply_rowwise(self.output, self.decoder_dropout[-1](x_BQF, keys_BQ))

    def _embedded(self, tokens_BL: Tensor) -> Tensor:
        return self._scaled_embeddings(tokens_BL.flatten()).unflatten(0, tokens_BL.shape)

    def first_states(self, batch: int) -> list[Tensor]:
        """Returns h and c of each decoder layer, zero: (B, 1, F) each."""
        return [self.output.weight.new_zeros(batch, 1, self.config.d_ff) for _ in range(2 * len(self.decoder))]

    def step(self, tokens_BW: Tensor, cache: StateCache) -> Tensor:
        """Decodes one position of every hypothesis and updates its states: hidden_BWD."""

        def run(i: int, x_BWX: Tensor) -> Tensor:
            rows = slice(2 * i, 2 * i + 2)
            h, c = (pad_rows(state_BWF.flatten(0, 1))[None] for state_BWF in cache.states[rows])
            _, after = self.decoder[i](pad_rows(x_BWX.flatten(0, 1))[:, None], (h, c))
            cache.states[rows] = [state[0, : tokens_BW.numel()].unflatten(0, tokens_BW.shape) for state in after]
            return cache.states[2 * i]

        return self._decode(self._embedded(tokens_BW), cache.source, run)


def lstm(n_inputs: int, n_units: int) -> nn.LSTM:
    """Returns an LSTM layer with forget gates biased open (Jozefowicz et al. 2015)."""
    layer = nn.LSTM(n_inputs, n_units, batch_first=True)
    nn.init.ones_(cast("Tensor", layer.bias_ih_l0)[n_units : 2 * n_units])
    return layer


def mirror(tokens_BL: Tensor) -> Tensor:
    """Returns the indices that reverse each sentence, and its padding, in place: (B, L)."""
    n_B1 = (tokens_BL != PAD_ID).sum(dim=1, keepdim=True)
    length = tokens_BL.shape[1]
    return (n_B1 - 1 - torch.arange(length, device=tokens_BL.device)) % length
