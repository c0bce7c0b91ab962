"""A complete text, read by its stages' functions in this process, without a store."""

from pathlib import Path
from typing import Any, NamedTuple

from pipeline.artifacts import Corpus, EvaluationSet
from pipeline.settings import CleaningSettings, Settings
from pipeline.store.artifact import Artifact
from pipeline.text.lines import read_pairs
from tests.support.contexts import new_context
from tests.support.parallel_text import pairs_of
from workflows import stages
from workflows.engine.dag import Step


class Text(NamedTuple):
    corpus: Corpus
    sets: dict[str, EvaluationSet]

    def pairs(self, name: str = "train") -> list[tuple[str, str]]:
        if name == "train":
            return pairs_of(self.corpus)
        return list(read_pairs(self.sets[name].source, self.sets[name].references))


def read_text(folder: Path, settings: Settings, **cleaning: Any) -> Text:

    def made(step: Step[Artifact], name: str) -> Any:
        return step.stage.function(new_context(folder / name), *step.arguments)

    corpus, sets = stages.text_of("text", settings, CleaningSettings(**cleaning))
    return Text(made(corpus, "train"), {name: made(step, name) for name, step in sets.items()})
