"""Measures a model's perplexity and token accuracy on the dev set.

Perplexity is exp of the mean negative log-likelihood, without label smoothing.

    measure(Context(folder), checkpoint, dev).load().dev_perplexity
    measure_by_length(Context(other), checkpoint, dev, longest_trained=16).load().ranges

§3.5 chose sinusoids over learned positions since they "may allow the model to extrapolate to sequence lengths longer
than the ones encountered during training". To test that, a model trained on pairs of at most L tokens (`max_tokens`) is
also evaluated on longer ones, up to LONGEST_TOKENS.
"""

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
"""Ends of the ranges of lengths, as multiples of the longest trained on; a last range holds all longer pairs."""


class PerplexityRecord(Record):
    """`perplexity.json`: metrics on the dev set."""

    dev_nll: float
    """Nats per target token, END_ID included."""
    dev_perplexity: float
    tokens: int
    """Target tokens of the dev set, END_ID included."""
    dev_accuracy: float | None = None
    """Share of tokens predicted correctly given the reference prefix (§5.4: label smoothing "improves accuracy"). None
    if written by an older version."""


class Perplexity(JsonArtifact[PerplexityRecord]):
    """`perplexity.json` of a checkpoint."""

    record_file = "perplexity.json"


class LengthRange(PerplexityRecord):
    """Dev pairs whose longer side has more than `above_tokens` and at most `up_to_tokens`, END_ID included."""

    above_tokens: int
    up_to_tokens: int
    pairs: int


class LengthPerplexityRecord(Record):
    """`length_perplexity.json`: dev perplexity by the length of a pair's longer side, END_ID included."""

    longest_trained: int
    """Longest side of a training pair in tokens."""
    longer: PerplexityRecord | None
    """Metrics of all longer pairs; None if there are none."""
    ranges: tuple[LengthRange, ...]
    """The non-empty ranges, shortest first; together they cover the dev set."""


class LengthPerplexity(JsonArtifact[LengthPerplexityRecord]):
    """`length_perplexity.json` of a checkpoint."""

    record_file = "length_perplexity.json"


def measure(context: Context, checkpoint: Checkpoint, dev: EvaluationSet) -> Perplexity:
    """Writes a checkpoint's perplexity and token accuracy on the dev set, in float32 on `context.device`.

    Raises UserError if no dev pair is short enough to be computed.
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
    """Writes the same metrics as `measure` for each range of lengths."""
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
                record = dict(_of_pairs(model, split, rows))
                ranges.append(LengthRange(**record, above_tokens=above, up_to_tokens=up_to, pairs=len(rows)))
        beyond = computed[longer_side > longest_trained]
        longer = _of_pairs(model, split, beyond) if len(beyond) else None
    return LengthPerplexity(context.folder).write(
        LengthPerplexityRecord(longest_trained=longest_trained, longer=longer, ranges=tuple(ranges))
    )


def _of_pairs(
    model: "EncoderDecoder", split: "EncodedSplit", of_rows: "NDArray[np.int64] | None" = None
) -> PerplexityRecord:
    """Returns the metrics over the computable pairs of a split, or of some rows; there must be one."""
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
