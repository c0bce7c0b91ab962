"""Measures perplexity by the length of sentences, up to those longer than any that a model was trained on.

    measure(Context(folder), checkpoint, dev, longest_trained=16).load().ranges

§3.5 chose sinusoids over learned positions since they "may allow the model to extrapolate to sequence lengths longer
than the ones encountered during training". A dataset encoded with `max_tokens` = L has no longer pair in its training
split; its dev split has longer ones, which count here up to LONGEST_TOKENS.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipeline.evaluation.perplexity import PerplexityFigures, of_pairs
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Checkpoint, EvaluationSet
from pipeline.store.figures import Figures

RANGE_ENDS = (1 / 3, 2 / 3, 1, 1.25, 1.5, 2)
"""The ends of ranges of lengths, as multiples of the longest trained on; a last range has whatever is longer still."""


class LengthRange(PerplexityFigures):
    """The dev pairs whose longer side, END_ID counted, has more than `above_tokens` and at most `up_to_tokens`."""

    above_tokens: int
    up_to_tokens: int
    pairs: int


class LengthPerplexityFigures(Figures):
    """`length_perplexity.json`: perplexity on the dev split, by the longer side of a pair, END_ID counted."""

    longest_trained: int
    """The longest side of a training pair, in tokens."""
    longer: PerplexityFigures | None
    """Of all pairs that are longer; None if none are."""
    ranges: tuple[LengthRange, ...]
    """The ranges that hold any pair, shortest first; together they hold the dev split."""


@dataclass(frozen=True)
class LengthPerplexity(JsonArtifact[LengthPerplexityFigures]):
    """`length_perplexity.json`: the perplexity of a checkpoint by the length of sentences."""

    figures_file = "length_perplexity.json"


def measure(context: Context, checkpoint: Checkpoint, dev: EvaluationSet, longest_trained: int) -> LengthPerplexity:
    """Writes a checkpoint's perplexity on each range of the dev set, computed in float32 on `context.device`.

    Raises UserError where no dev pair is short enough to be computed.
    """
    from pipeline.evaluation.translation import load_model  # torch is slow to import, and the artifact does not need it
    from pipeline.text.encoding import encoded_set

    model, ranges = load_model(checkpoint.folder, context.device), []
    with encoded_set(context, dev, checkpoint.vocabulary) as split:
        computed = split.computed_rows
        longer_side = np.maximum(split.source_lengths, split.target_lengths)[computed]
        ends = [0, *(int(end * longest_trained) for end in RANGE_ENDS)]
        for above, up_to in pairwise([*ends, max(ends[-1], int(longer_side.max()))]):
            rows = computed[(longer_side > above) & (longer_side <= up_to)]
            if len(rows):
                figures = dict(of_pairs(model, split, rows))
                ranges.append(LengthRange(**figures, above_tokens=above, up_to_tokens=up_to, pairs=len(rows)))
        beyond = computed[longer_side > longest_trained]
        longer = of_pairs(model, split, beyond) if len(beyond) else None
    artifact = LengthPerplexity(context.folder)
    artifact.write(LengthPerplexityFigures(longest_trained=longest_trained, longer=longer, ranges=tuple(ranges)))
    return artifact
