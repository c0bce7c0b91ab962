"""Reads the results of Table 4's parsers from the artifacts of their stages, their only source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from pipeline.evaluation.parses import Parses
from pipeline.evaluation.tree_scores import BracketScores, ScoredTrees, TreeScores
from pipeline.parsing.linearisation import tagged
from pipeline.parsing.treebank import RECOMBINED_COLLECTION
from pipeline.parsing.trees import Tree, bracketed, words_of
from pipeline.store.artifacts import ChosenParser, Hypotheses
from pipeline.store.records import ChoiceRecord
from workflows.engine.dag import Ref, to_artifact
from workflows.paper import ParserTraining
from workflows.quantities import rounded
from workflows.tables.measurements import N_SAMPLES, TrainedModel

WSJ = "WSJ"
"""The `data` of a profile with the paper's treebank."""
N_DRAWN = 3
"""The number of parses drawn."""
MAX_DRAWN_WORDS = 18
"""The longest sentence drawn, in words."""


@dataclass(frozen=True)
class CandidateParser(TrainedModel):
    """A candidate parser, measured on the dev set."""

    parses: Ref[Parses]
    scores: Ref[ScoredTrees]

    command = "parse"
    unit = "trees"

    @property
    def label(self) -> str:
        """Its name, prefixed with its row's."""
        return self.model

    @cached_property
    def recombined_trees(self) -> int:
        """The number of training trees recombined from the treebank's constituents."""
        shards = to_artifact(self.corpus).shards
        return sum(shard.pairs for shard in shards if shard.collection == RECOMBINED_COLLECTION)

    @property
    def test_text(self) -> str:
        """The treebank's test set, on which the chosen candidate is scored."""
        return "WSJ section 23" if self.data == WSJ else f"{self.data}, held out"

    @property
    def data_text(self) -> str:
        """The treebank and the number of its trees, and of those recombined."""
        text = f"{self.data}, {rounded(self.train_pairs - self.recombined_trees)} trees"
        recombined = f", and {rounded(self.recombined_trees)} recombined of their constituents"
        return text + recombined * bool(self.recombined_trees)

    def is_on(self, corpus: str) -> bool:
        """Whether all training trees are the paper's."""
        return self.data == WSJ and not self.recombined_trees

    @property
    def writes_tags(self) -> bool:
        """True if the symbol of a word names its tag."""
        return any(symbol.startswith(tagged("")) for symbol in to_artifact(self.corpus).symbols)

    @cached_property
    def total(self) -> BracketScores:
        """The scores of all sentences of the dev set."""
        return to_artifact(self.scores).load().total

    def final_metrics(self) -> dict[str, float]:
        """Returns the metrics of every model, and the tree scores of the dev set."""
        names = ("f1", "recall", "precision", "complete_match")
        return {**super().final_metrics(), **{f"{name}.{self.test_set}": getattr(self.total, name) for name in names}}

    def score_texts(self) -> dict[str, str]:
        """Returns F1 on the dev set in words."""
        total, parsed = self.total, to_artifact(self.parses).load()
        return {
            f"F1, {self.test_set}": f"{total.f1:.2f} (recall {total.recall:.2f}, precision {total.precision:.2f}), "
            f"{parsed.repaired:,} of {parsed.sentences:,} trees repaired"
        }

    def samples_text(self) -> str:
        """Returns the first trees of the dev set beside the gold ones."""
        parses = to_artifact(self.parses)
        pairs = islice(zip(parses.gold, parses.trees, strict=True), N_SAMPLES)
        return "\n\n".join(f"gold:  {bracketed(gold)}\nparse: {bracketed(tree)}" for gold, tree in pairs)


@dataclass(frozen=True)
class SearchedTrees:
    """The test set as parsed by the chosen parser; files are read on access."""

    hypotheses: Ref[Hypotheses]
    parses: Ref[Parses]
    scores: Ref[ScoredTrees]

    @property
    def measured(self) -> TreeScores:
        """The scores of the test set."""
        return to_artifact(self.scores).load()


@dataclass(frozen=True)
class ParserRow:
    """A Transformer row of Table 4: its candidates, the chosen parser, and the trees of the test set.

    Files are read on access, which raises UserError if one is missing, broken or lacks a value.
    """

    training: ParserTraining
    data: str
    candidates: tuple[CandidateParser, ...]
    """The candidates with results."""
    failures: Mapping[str, str]
    """Why the other candidates failed, by name."""
    baseline: Ref[ScoredTrees]
    parser: Ref[ChosenParser] | None
    """None if no candidate has results."""
    found: SearchedTrees | None

    @cached_property
    def choice(self) -> ChoiceRecord | None:
        """The choice on the dev set; None if no candidate has results."""
        return to_artifact(self.parser).choice if self.parser else None

    @property
    def chosen(self) -> CandidateParser | None:
        """The chosen candidate."""
        return next((parser for parser in self.candidates if self.choice and parser.model == self.choice.model), None)

    @property
    def baseline_scores(self) -> TreeScores:
        """The scores of right-branching trees."""
        return to_artifact(self.baseline).load()

    @property
    def drawn(self) -> list[tuple[Tree, Tree]]:
        """Gold and parsed trees at regular intervals among short test sentences, wrong parses first."""
        parses = to_artifact(self.found.parses) if self.found else None
        pairs = zip(parses.gold, parses.trees, strict=True) if parses else ()
        wrong, right = list[tuple[Tree, Tree]](), list[tuple[Tree, Tree]]()
        for gold, tree in pairs:
            if 6 <= len(words_of(gold)) <= MAX_DRAWN_WORDS:
                (right if bracketed(gold) == bracketed(tree) else wrong).append((gold, tree))
        n_wrong = max(N_DRAWN - 1, N_DRAWN - len(right))
        return [*_evenly(wrong, n_wrong), *_evenly(right, N_DRAWN)][:N_DRAWN]


def _evenly(pairs: list[tuple[Tree, Tree]], n: int) -> list[tuple[Tree, Tree]]:
    return pairs[:: max(1, len(pairs) // max(n, 1))][:n]
