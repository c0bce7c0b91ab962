"""Examines all heads of a model on a sample of the dev set: what they attend to, and their effect on perplexity.

    examine(Context(folder), checkpoint, dev, HeadSettings()).load().heads[0].perplexity_change

The decoder is given the reference, so position i of the target writes token i and reads token i - 1.

Shapes: B batch, L query length, M key length, H heads.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from model.attention import EncoderOutput
from model.batch import Batch, shift_right
from model.config import BEGIN_ID, END_ID, PAD_ID
from model.loss import perplexity_of, smoothed_cross_entropy
from model.transformer import Transformer
from pipeline.attention.recording import attentions, head_off, recording
from pipeline.attention.records import KINDS, HeadRecord, Heads, HeadSettings, HeadsRecord, Kind
from pipeline.evaluation.translation import load_model, with_heads
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, EvaluationSet
from pipeline.text.encoding import EncodedSplit, encoded_set
from pipeline.training.validation import batches

BATCH_TOKENS = 2048
"""Maximum tokens per side of a batch, whose weights are all recorded."""


class _Sample(NamedTuple):
    source_BS: Tensor
    target_BT: Tensor
    batch: Batch
    """The same pairs as the model's input."""

    def queries(self, kind: Kind) -> Tensor:
        """Returns True for real queries, (B, L)."""
        return (self.source_BS if kind == "encoder" else self.target_BT) != PAD_ID

    def separators(self, kind: Kind) -> Tensor:
        """Returns True for ⟨begin⟩ or ⟨end⟩ among the keys, (B, M)."""
        return shift_right(self.target_BT) == BEGIN_ID if kind == "decoder" else self.source_BS == END_ID


def examine(context: Context, checkpoint: Checkpoint, dev: EvaluationSet, settings: HeadSettings) -> Heads:
    """Writes the table of heads, computed in float32 on `context.device`.

    Raises UserError if no dev pair is short enough to be computed, or the model has no heads.
    """
    checkpoint = checkpoint.on_this_node(context.scratch)
    model = with_heads(load_model(checkpoint.folder, context.device), checkpoint.folder)
    with encoded_set(context, dev, checkpoint.vocabulary) as split:
        samples = _sample(split, settings.sample_pairs, context.device)
    total = sum(len(attentions(model, kind)) * model.config.n_heads for kind in KINDS)
    with torch.inference_mode():
        encoded = [model.encode(sample.batch.source) for sample in samples]
        with_all, n_tokens = _nll(model, samples, encoded)
        perplexity = perplexity_of(with_all / n_tokens)
        statistics = []
        for kind in KINDS:
            for layer, means_HX in enumerate(_means(model, samples, kind)):
                attention = attentions(model, kind)[layer]
                for head in range(attention.n_heads):
                    with head_off(attention, head):
                        nll, _ = _nll(model, samples, encoded if kind != "encoder" else None)
                    without = perplexity_of(nll / n_tokens)
                    names = ("entropy", "distance", "previous", "same", "next", "separator")
                    statistics.append(
                        HeadRecord(
                            kind=kind,
                            layer=layer + 1,
                            head=head + 1,
                            **dict(zip(names, means_HX[head].tolist(), strict=True)),
                            perplexity_without=without,
                            perplexity_change=without - perplexity,
                        )
                    )
                    context.progress(len(statistics), total, "heads")
    pairs = sum(len(sample.source_BS) for sample in samples)
    return Heads(context.folder).write(
        HeadsRecord(heads=tuple(statistics), perplexity=perplexity, pairs=pairs, tokens=n_tokens)
    )


def _sample(split: EncodedSplit, at_most_pairs: int, device: str) -> list[_Sample]:
    computed = split.computed_rows
    places = np.linspace(0, len(computed) - 1, min(at_most_pairs, len(computed)))
    samples = []
    for rows in batches(split, computed[np.unique(places.round().astype(np.int64))], BATCH_TOKENS):
        source_BS, target_BT = (tokens.to(device) for tokens in split.batch(rows))
        samples.append(_Sample(source_BS, target_BT, Batch.padded(source_BS, target_BT, torch.float32)))
    return samples


def _nll(model: Transformer, samples: list[_Sample], encoded: list[EncoderOutput] | None) -> tuple[float, int]:
    """Returns the negative log-likelihood in nats and the number of target tokens; encodes sources unless `encoded`."""
    nll, n_tokens = 0.0, 0
    for number, sample in enumerate(samples):
        batch = sample.batch
        hidden_ND = model.decode(batch.inputs, encoded[number] if encoded else model.encode(batch.source))
        nll += float(smoothed_cross_entropy(hidden_ND, model.embedding.weight, batch.targets_N, smoothing=0.0)[1])
        n_tokens += int((batch.targets_N != PAD_ID).sum())
    return nll, n_tokens


def _means(model: Transformer, samples: list[_Sample], kind: Kind) -> list[Tensor]:
    """Returns the mean statistics of each layer's heads, (H, 6), in the order of `_statistics`."""
    sums: list[Tensor] = []
    n_queries = 0
    for sample in samples:
        with recording(model) as weights:
            model(sample.batch.source, sample.batch.inputs)
        real_BL = sample.queries(kind)
        n_queries += int(real_BL.sum())
        statistics = [
            _statistics(weights_BHLM.double(), sample.separators(kind), real_BL)
            for weights_BHLM in getattr(weights, kind)
        ]
        sums = [before + added for before, added in zip(sums, statistics, strict=True)] if sums else statistics
    return [of_layer / n_queries for of_layer in sums]


def _statistics(weights_BHLM: Tensor, separators_BM: Tensor, real_BL: Tensor) -> Tensor:
    """Sums entropy, distance and shares over the real queries of a batch: (H, 6)."""
    n_queries, n_keys = weights_BHLM.shape[2:]
    place = weights_BHLM.new_tensor(range(max(n_queries, n_keys)))
    offset_LM = place[None, :n_keys] - place[:n_queries, None]
    on_text = weights_BHLM * ~separators_BM[:, None, None]
    mass = on_text.sum(-1)
    parts = [
        -torch.xlogy(weights_BHLM, weights_BHLM).sum(-1) / math.log(2),
        (on_text * offset_LM.abs()).sum(-1) / mass.clamp(min=1e-12),
        *((weights_BHLM * (offset_LM == offset)).sum(-1) for offset in (-1, 0, 1)),
        (weights_BHLM * separators_BM[:, None, None]).sum(-1),
    ]
    return (torch.stack(parts, dim=-1) * real_BL[:, None, :, None]).sum(dim=(0, 2))
