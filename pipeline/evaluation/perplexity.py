"""Measures a model's perplexity and token accuracy on the dev set.

Perplexity is exp of the mean plain negative log-likelihood, not of the smoothed loss.

measure(Context(folder), checkpoint, dev).load().dev_perplexity
measure_by_length(Context(other), checkpoint, dev, longest_trained=16).load().ranges

§3.5 chose sinusoids over learned positions since they "may allow the model to extrapolate to sequence lengths longer
than the ones encountered during training". A model that was trained on pairs of at most L tokens (`max_tokens`) is
measured on longer ones too, up to LONGEST_TOKENS.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Checkpoint, EvaluationSet
from pipeline.store.records import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from model.encoder_decoder import EncoderDecoder
    from pipeline.text.encoding import EncodedSplit

RANGE_ENDS = (1 / 3, 2 / 3, 1, 1.25, 1.5, 2)
"""The ends of ranges of lengths, as multiples of the longest trained on; a last range has whatever is longer still."""


class PerplexityRecord(Record):
    """`perplexity.json`: what was measured on the dev set."""

    dev_nll: float
    """Nats per target token, END_ID counted."""
    dev_perplexity: float
    tokens: int
    """Target tokens of the dev set, END_ID counted."""
    dev_accuracy: float | None = None
    """The share of them that the model, given the reference before each, finds the most probable (§5.4: label smoothing
    "improves accuracy"). None: an earlier version did not count it."""


@dataclass(frozen=True)
class Perplexity(JsonArtifact[PerplexityRecord]):
    """`perplexity.json`: the perplexity of a checkpoint."""

    record_file = "perplexity.json"


class LengthRange(PerplexityRecord):
    """The dev pairs whose longer side, END_ID counted, has more than `above_tokens` and at most `up_to_tokens`."""

    above_tokens: int
    up_to_tokens: int
    pairs: int


class LengthPerplexityRecord(Record):
    """`length_perplexity.json`: perplexity on the dev set, by the longer side of a pair, END_ID counted."""

    longest_trained: int
    """The longest side of a training pair, in tokens."""
    longer: PerplexityRecord | None
    """Of all pairs that are longer; None if none are."""
    ranges: tuple[LengthRange, ...]
    """The ranges that hold any pair, shortest first; together they hold the dev set."""


@dataclass(frozen=True)
class LengthPerplexity(JsonArtifact[LengthPerplexityRecord]):
    """`length_perplexity.json`: the perplexity of a checkpoint by the length of sentences."""

    record_file = "length_perplexity.json"


def measure(context: Context, checkpoint: Checkpoint, dev: EvaluationSet) -> Perplexity:
    """Writes the perplexity and token accuracy of a checkpoint on the dev set, computed in float32 on `context.device`.

    Raises UserError where no dev pair is short enough to be computed.
    """
    from pipeline.evaluation.translation import load_model  # torch is slow to import, and the artifact does not need it
    from pipeline.text.encoding import encoded_set

    checkpoint = checkpoint.on_this_node(context.scratch)
    with encoded_set(context, dev, checkpoint.vocabulary) as split:
        measured = _of_pairs(load_model(checkpoint.folder, context.device), split)
    return Perplexity(context.folder).write(measured)


def measure_by_length(
    context: Context, checkpoint: Checkpoint, dev: EvaluationSet, longest_trained: int
) -> LengthPerplexity:
    """Writes, for each range of lengths, what `measure` writes."""
    import numpy as np

    from pipeline.evaluation.translation import load_model
    from pipeline.text.encoding import encoded_set

    checkpoint = checkpoint.on_this_node(context.scratch)
    model, ranges = load_model(checkpoint.folder, context.device), []
    with encoded_set(context, dev, checkpoint.vocabulary) as split:
        computed = split.computed_rows
        longer_side = np.maximum(split.source_lengths, split.target_lengths)[computed]
        ends = [0, *(int(end * longest_trained) for end in RANGE_ENDS)]
        for above, up_to in pairwise([*ends, max(ends[-1], int(longer_side.max()))]):
            rows = computed[(longer_side > above) & (longer_side <= up_to)]
            if len(rows):
                figures = dict(_of_pairs(model, split, rows))
                ranges.append(LengthRange(**figures, above_tokens=above, up_to_tokens=up_to, pairs=len(rows)))
        beyond = computed[longer_side > longest_trained]
        longer = _of_pairs(model, split, beyond) if len(beyond) else None
    return LengthPerplexity(context.folder).write(
        LengthPerplexityRecord(longest_trained=longest_trained, longer=longer, ranges=tuple(ranges))
    )


def _of_pairs(
    model: "EncoderDecoder", split: "EncodedSplit", of_rows: "NDArray[np.int64] | None" = None
) -> PerplexityRecord:
    """Returns the perplexity on the pairs of a split, or of some rows, that are short enough; there has to be one."""
    import torch

    from model.loss import perplexity_of
    from pipeline.training.validation import split_sums

    n_correct = torch.zeros((), dtype=torch.int64, device=model.embedding.weight.device)
    _, nll, n_tokens = split_sums(model, split, smoothing=0.0, of_rows=of_rows, n_correct=n_correct).tolist()
    return PerplexityRecord(
        dev_nll=nll / n_tokens,
        dev_perplexity=perplexity_of(nll / n_tokens),
        tokens=int(n_tokens),
        dev_accuracy=int(n_correct) / n_tokens,
    )
