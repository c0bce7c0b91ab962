"""Scores each checkpoint that a training kept on the dev set, by itself: how BLEU, or a parser's F1, grows.

measured = measure(Context(folder), run, corpus, DecodingSettings())
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pipeline.evaluation.parses import rebuild_parses
from pipeline.evaluation.tree_scores import score_parses
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Checkpoint, Corpus, CTranslate2Model, TrainingRun
from pipeline.store.figures import Figures

if TYPE_CHECKING:
    from pipeline.evaluation.decoding import Translators

DEV = "dev"


class DevScoresFigures(Figures):
    """`dev_scores.json`: the scores of the dev set, by name and by the update of the checkpoint, in order."""

    series: Mapping[str, Mapping[int, float]]


class DevScores(JsonArtifact[DevScoresFigures]):
    """`dev_scores.json`; neither the weights nor what they wrote is kept."""

    figures_file = "dev_scores.json"

    @property
    def summary(self) -> str:
        """The main score of every checkpoint."""
        name, scores = list(self.load().series.items())[-1]
        return f"{name} " + ", ".join(f"{score:.2f} after {update:,}" for update, score in scores.items())


def measure(context: Context, run: TrainingRun, corpus: Corpus, settings: DecodingSettings) -> DevScores:
    """Decodes and scores the dev set with every checkpoint that `run` kept, one after another.

    Raises UserError where a checkpoint is damaged, or where it cannot be decoded or scored.
    """
    from pipeline.evaluation.averaging import each_kept  # torch is slow to import, and the artifact does not need it

    series: dict[str, dict[int, float]] = {}
    for update, checkpoint in each_kept(context, run):
        for name, score in scores_of(context, checkpoint, corpus, settings).items():
            series.setdefault(name, {})[update] = score
    measured = DevScores(context.folder)
    measured.write(DevScoresFigures(series=series))
    return measured


def scores_of(
    context: Context,
    model: Checkpoint | CTranslate2Model,
    corpus: Corpus,
    settings: DecodingSettings,
    translators: "Translators | None" = None,
) -> dict[str, float]:
    """Returns the BLEU scores of what a model makes of the dev set, or a parser's F1; what it makes is not kept.

    `translators` hold the model already, if there are any. Raises UserError where it cannot be decoded or scored.
    """
    from pipeline.evaluation import decoding, scoring

    # Each node gets a model of the store; one that was made beside the result is only where nodes share the disk.
    shared = None if model.folder.is_relative_to(context.folder) else context.shared
    # Beside the result, so that all nodes see it.
    with TemporaryDirectory(dir=context.folder) as decoded, TemporaryDirectory(dir=context.folder) as scored:
        within = Context(Path(decoded), shared=shared)
        hypotheses = decoding.decode(within, model, corpus, settings, [DEV], translators)
        within = Context(Path(scored))
        if corpus.symbols:
            parses = rebuild_parses(within, hypotheses, corpus, [DEV])
            return {"dev_f1": score_parses(within, parses).load().splits[DEV].total.f1}
        bleu = scoring.score(within, hypotheses, corpus, [DEV]).load().test_sets[DEV]
    return {f"dev_{name}": score for name, score in bleu.defined.items()}
