"""The parsers of Table 4 (§6.3), as steps of the DAG: candidates, the choice on the dev set, test scores."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from pipeline.settings import TrainingSettings
from pipeline.store.artifacts import EvaluationSet
from workflows import paper, stages
from workflows.engine.dag import Step
from workflows.profiles.parsing import SEMI_SUPERVISED, ParsingProfile
from workflows.tables.measured import Cell
from workflows.tables.table4 import ParserRow


@dataclass(frozen=True)
class ParserGrid:
    """The candidates for one row of the table."""

    profile: ParsingProfile
    """The profile with the row's settings applied."""
    name: str
    """The row's key in the profile: supervised or semi-supervised."""
    with_dev_scores: bool = False
    """Whether to score every kept checkpoint on the dev set."""

    @property
    def training(self) -> paper.ParserTraining:
        """The paper's name for this kind of training."""
        return "semi-supervised" if self.name == SEMI_SUPERVISED else "WSJ only, discriminative"

    @cached_property
    def text(self) -> stages.Prepared:
        """The trees as training pairs: sentences and symbols."""
        return stages.prepared(self.profile, self.name)

    @property
    def test_set(self) -> Step[EvaluationSet]:
        """The test set of the table's F1."""
        return next(iter(self.text.test_sets.values()))

    @cached_property
    def candidates(self) -> list[Cell]:
        """One run per combination of dropouts and learning rate, scored on the dev set."""
        choice, recipe = self.profile.choice, self.profile.recipes["parser"]
        grid = list(product(choice.dropouts, choice.attention_dropouts, choice.learning_rate_scales))
        candidates = []
        for dropout, attention_dropout, scale in grid:
            of_attention = f" attention {attention_dropout:g}" if len(choice.attention_dropouts) > 1 else ""
            name = f"dropout {dropout:g}{of_attention} rate {scale:g}" if len(grid) > 1 else ""
            training = varied(recipe.training, dropout, attention_dropout, scale)
            decoding = self.profile.decoding.beside(training, workers=training.worker_bounds[0])
            own = recipe.model_copy(update={"training": training})
            candidate = stages.trained(
                self.text, name, own, decoding, on_dev=True, with_dev_scores=self.with_dev_scores, of_trees=True
            )
            candidates.append(replace(candidate, model=f"{self.name} {name}".strip()))
        return candidates

    def row(self, failures: Mapping[str, str]) -> ParserRow:
        """Returns the row, chosen from the candidates with results."""
        candidates = tuple(candidate for candidate in self.candidates if candidate.model not in failures)
        baseline = stages.RIGHT_BRANCHING(f"right-branching {self.name}", self.text.corpus, self.test_set)
        decoding, found = self.profile.decoding, dict[str, Any]()
        if candidates:
            entries = [(candidate.model, candidate.checkpoint, *candidate.scores) for candidate in candidates]
            beams = list(self.profile.choice.beam_sizes)
            parser = stages.CHOOSE_PARSER(f"choose {self.name}", entries, self.text.dev, decoding, beams)
            name = f"{self.name} test"
            hypotheses = stages.DECODE(f"parse {name}", parser, self.test_set, decoding, parser)
            parses = stages.REBUILD_PARSES(f"rebuild {name}", hypotheses, self.test_set)
            scores = stages.SCORE_PARSES(f"score {name}", parses)
            found = {"parser": parser, "hypotheses": hypotheses, "parses": parses, "scores": scores}
        return ParserRow(
            training=self.training,
            data=self.profile.data,
            candidates=candidates,
            failures={failed.model: failures[failed.model] for failed in self.candidates if failed.model in failures},
            baseline=stages.SCORE_PARSES(f"score right-branching {self.name}", baseline),
            **found,
        )


def varied(
    training: TrainingSettings, dropout: float, attention_dropout: float, learning_rate_scale: float
) -> TrainingSettings:
    """Returns training settings with other dropouts, and the learning rate multiplied by `scale`."""
    rate = learning_rate_scale * training.optimizer.learning_rate_scale
    changes = {
        "model": replace(training.model, dropout=dropout, attention_dropout=attention_dropout),
        "optimizer": replace(training.optimizer, learning_rate_scale=rate),
    }
    return training.model_copy(update=changes)
