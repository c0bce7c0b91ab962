"""Scores the trees of a parser as EVALB does with COLLINS.prm (§6.3): Table 4's F1, and F1 by the sentences' length.

scores = score_parses(Context(folder), parses).load().splits["test"].total.f1
"""

import math
from collections.abc import Mapping, Sequence

from pipeline.errors import UserError
from pipeline.evaluation.parses import Parses
from pipeline.parsing.evalb import SentenceScore, Total, score_trees
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.figures import Figures

LENGTHS = (10, 20, 30, 40)
"""The greatest numbers of words of the groups of sentences; the last group is of longer ones."""


class BracketScores(Figures):
    """EVALB's figures of some sentences; those with an error and skipped ones are only counted as such."""

    sentences: int
    valid: int
    recall: float
    """In percent, like the next three."""
    precision: float
    f1: float
    """0 where nothing matches."""
    complete_match: float


class TreeScores(Figures):
    """The scores of a split."""

    total: BracketScores
    short: BracketScores
    """Of the sentences of at most 40 words, punctuation included."""
    by_length: Mapping[str, BracketScores]
    """By the number of words, punctuation included, e.g. "11-20"; groups without a sentence are left out."""


class TreeScoringFigures(Figures):
    """`tree_scores.json`."""

    splits: Mapping[str, TreeScores]


class ScoredTrees(JsonArtifact[TreeScoringFigures]):
    """`tree_scores.json`: EVALB's figures of each split."""

    figures_file = "tree_scores.json"

    @property
    def summary(self) -> str:
        """F1 of each split."""
        return "; ".join(f"{name}: F1 {scores.total.f1:.2f}" for name, scores in self.load().splits.items())


def score_parses(context: Context, parses: Parses) -> ScoredTrees:
    """Writes the scores of each split's trees against the gold ones. Raises UserError as `score_trees` does."""
    splits = {}
    for split in parses.load().splits:
        scores = score_trees(parses.folder / f"{split}.gold", parses.folder / f"{split}.trees")
        if not scores.sentences:
            raise UserError(f"{parses.folder / split}.gold holds no tree; there is nothing to score")
        splits[split] = TreeScores(
            total=_figures(scores.total), short=_figures(scores.total_short), by_length=_by_length(scores.sentences)
        )
    scored = ScoredTrees(context.folder)
    scored.write(TreeScoringFigures(splits=splits))
    return scored


def _by_length(sentences: Sequence[SentenceScore]) -> dict[str, BracketScores]:
    groups: dict[str, BracketScores] = {}
    least = 1
    for most in (*LENGTHS, None):
        group = [s for s in sentences if least <= s.length and (most is None or s.length <= most)]
        if group:
            groups[f"{least}-{most}" if most else f"{least} and more"] = _figures(Total.of(group))
        least = (most or 0) + 1
    return groups


def _figures(total: Total) -> BracketScores:
    return BracketScores(
        sentences=total.sentences,
        valid=total.valid,
        recall=total.recall,
        precision=total.precision,
        f1=0.0 if math.isnan(total.f1) else total.f1,
        complete_match=total.complete_match,
    )
