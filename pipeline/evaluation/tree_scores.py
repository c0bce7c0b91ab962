"""Scores a parser's trees like EVALB with COLLINS.prm (§6.3): Table 4's F1.

f1 = score_parses(Context(folder), parses).load().total.f1
"""

from pipeline.context import Context
from pipeline.evaluation.parses import Parses
from pipeline.parsing.evalb import score_trees
from pipeline.records import Record
from pipeline.store.artifact import JsonArtifact


class BracketScores(Record):
    """EVALB's scores over sentences; sentences with an error and skipped ones are only counted."""

    sentences: int
    valid: int
    recall: float
    """In percent, like the next three."""
    precision: float
    f1: float
    complete_match: float


class TreeScores(Record):
    """`tree_scores.json`."""

    total: BracketScores
    short: BracketScores
    """Over sentences of at most 40 words, punctuation included."""


class ScoredTrees(JsonArtifact[TreeScores]):
    """`tree_scores.json`: EVALB's scores of an evaluation set."""

    record_file = "tree_scores.json"

    @property
    def summary(self) -> str:
        """F1."""
        return f"F1 {self.load().total.f1:.2f}"


def score_parses(context: Context, parses: Parses) -> ScoredTrees:
    """Scores the trees against the gold trees. Raises UserError like `score_trees`."""
    scores = score_trees(parses.gold_path, parses.trees_path)
    totals = (scores.total, scores.total_short)
    total, short = (BracketScores.model_validate(each._asdict(), extra="ignore") for each in totals)
    return ScoredTrees(context.folder).write(TreeScores(total=total, short=short))
