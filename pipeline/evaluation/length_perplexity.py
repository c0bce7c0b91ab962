"""Measures perplexity by the length of sentences, up to those longer than any that a model was trained on.

    measure(Context(folder), checkpoint, dataset, longest_trained=16).load().ranges

§3.5 chose sinusoids over learned positions since they "may allow the model to extrapolate to sequence lengths longer
than the ones encountered during training". A dataset encoded with `max_tokens` = L has no longer pair in its training
split; its dev split has longer ones, which count here up to LONGEST_TOKENS.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.evaluation.perplexity import PerplexityFigures
from pipeline.settings import LONGEST_TOKENS
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Checkpoint, EncodedDataset
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


def measure(
    context: Context, checkpoint: Checkpoint, dataset: EncodedDataset, longest_trained: int
) -> LengthPerplexity:
    """Writes a checkpoint's perplexity on each range of the dev split, computed in float32 on `context.device`.

    Raises UserError where no dev pair is short enough to be computed, or where checkpoint and dataset have different
    vocabularies.
    """
    from model.loss import perplexity_of
    from pipeline.evaluation.translation import load_model  # torch is slow to import, and the artifact does not need it
    from pipeline.text.encoding import EncodedSplit
    from pipeline.training.validation import split_sums

    model = load_model(checkpoint.folder, context.device)
    dataset.check_vocabulary(model.config.vocabulary_size)
    split = EncodedSplit.open(dataset, "dev")
    computed = split.computed_rows
    if not len(computed):
        raise UserError(f"{dataset.folder} has no dev pair of at most {LONGEST_TOKENS} tokens; add shorter dev text")

    def figures(of_rows: NDArray[np.bool_]) -> PerplexityFigures | None:
        sums = split_sums(model, split, 0.0, of_rows=computed[of_rows])
        _, nll, n_tokens = sums.tolist()
        if not n_tokens:
            return None
        return PerplexityFigures(
            dev_nll=nll / n_tokens, dev_perplexity=perplexity_of(nll / n_tokens), tokens=int(n_tokens)
        )

    longer_side = np.maximum(split.source_lengths, split.target_lengths)[computed]
    ends = [0, *(int(end * longest_trained) for end in RANGE_ENDS)]
    ranges = []
    for above, up_to in pairwise([*ends, max(ends[-1], int(longer_side.max()))]):
        rows = (longer_side > above) & (longer_side <= up_to)
        if of_range := figures(rows):
            ranges.append(LengthRange(**dict(of_range), above_tokens=above, up_to_tokens=up_to, pairs=int(rows.sum())))
    artifact = LengthPerplexity(context.folder)
    artifact.write(
        LengthPerplexityFigures(
            longest_trained=longest_trained, longer=figures(longer_side > longest_trained), ranges=tuple(ranges)
        )
    )
    return artifact
