"""The peers: other libraries' Transformers, configured as close to the paper's model as they allow.

Unlike the paper's model, both have biases in their attention projections, and torch's also applies dropout to attention
weights and ReLU outputs. With dropout 0, biases 0 and copied weights, both compute our loss (see the tests).

Shapes: B batch, S source length, T target length, L either, D = d_model, V vocabulary.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from model.config import PAD_ID, TransformerConfig
from model.transformer import sinusoids
from pipeline.export.huggingface import marian_config


class TorchTransformer(nn.Module):
    """torch.nn.Transformer plus the parts it lacks: embedding, positions, masks, projection (§3.4, §3.5)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        self.transformer = nn.Transformer(
            config.d_model,
            config.n_heads,
            config.n_layers,
            config.n_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
            norm_first=False,
        )
        # Norms after the last layers are for pre-norm; a post-norm layer ends in its own norm.
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for parameter in self.transformer.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.embedding.weight, std=1 / self.scale)
        self.dropout = nn.Dropout(config.dropout)
        self.positions_LD: Tensor
        self.register_buffer("positions_LD", sinusoids(config.max_positions, config.d_model))

    def _embed(self, tokens_BL: Tensor) -> Tensor:
        x_BLD: Tensor = self.dropout(self.embedding(tokens_BL) * self.scale + self.positions_LD[: tokens_BL.shape[1]])
        return x_BLD

    def forward(self, source_BS: Tensor, inputs_BT: Tensor) -> Tensor:
        """Returns logits_BTV."""
        length = inputs_BT.shape[1]
        causal_TT = torch.ones(length, length, dtype=torch.bool, device=inputs_BT.device).triu(1)
        source_padding_BS = source_BS == PAD_ID
        hidden_BTD = self.transformer(
            self._embed(source_BS),
            self._embed(inputs_BT),
            tgt_mask=causal_TT,
            src_key_padding_mask=source_padding_BS,
            tgt_key_padding_mask=inputs_BT == PAD_ID,
            memory_key_padding_mask=source_padding_BS,
            tgt_is_causal=True,
        )
        return nn.functional.linear(hidden_BTD, self.embedding.weight)


class Marian(nn.Module):
    """Hugging Face's MarianMTModel, built from a configuration with the same sizes, without a download."""

    def __init__(self, config: TransformerConfig) -> None:
        from transformers import MarianConfig, MarianMTModel

        super().__init__()
        make_config: Any = MarianConfig
        self.marian = MarianMTModel(make_config(**marian_config(config), attn_implementation="sdpa"))

    def forward(self, source_BS: Tensor, inputs_BT: Tensor) -> Tensor:
        """Returns logits_BTV."""
        output = self.marian(input_ids=source_BS, attention_mask=source_BS != PAD_ID, decoder_input_ids=inputs_BT)
        logits_BTV: Tensor = output.logits
        return logits_BTV
