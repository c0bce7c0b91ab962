"""Scores every checkpoint of a run on the dev set, unaveraged: BLEU, or a parser's F1, over training.

measured = measure(Context(folder), run, dev, DecodingSettings())
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.artifacts import Checkpoint, EvaluationSet, TrainingRun
from pipeline.context import Context
from pipeline.evaluation.parses import rebuild_parses
from pipeline.evaluation.tree_scores import score_parses
from pipeline.records import Record
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import JsonArtifact
from pipeline.store.folders import temporary_folder

if TYPE_CHECKING:
    from pipeline.evaluation.decoding import Translators


class DevScoresRecord(Record):
    """`dev_scores.json`: dev-set scores by name and update, in order."""

    series: Mapping[str, Mapping[int, float]]


class DevScores(JsonArtifact[DevScoresRecord]):
    """`dev_scores.json`; weights and outputs are not kept."""

    record_file = "dev_scores.json"

    @property
    def summary(self) -> str:
        """The main score of each checkpoint."""
        name, scores = list(self.load().series.items())[-1]
        return f"{name} " + ", ".join(f"{score:.2f} after {update:,}" for update, score in scores.items())


def measure(context: Context, run: TrainingRun, dev: EvaluationSet, settings: DecodingSettings) -> DevScores:
    """Decodes and scores the dev set with each kept checkpoint of `run`, by the same actors.

    Raises UserError if a checkpoint cannot be decoded or scored.
    """
    from pipeline.evaluation.decoding import Translators  # Ray is slow to import, and the artifact does not need it

    series: dict[str, dict[int, float]] = {}
    updates = sorted(set(run.load().checkpoints))
    with Translators(context, settings) as translators:
        for done, update in enumerate(updates, start=1):
            scores = scores_of(context, run.checkpoint(update), dev, settings, translators)
            for name, score in scores.items():
                series.setdefault(name, {})[update] = score
            context.progress(done, len(updates), "checkpoints")
    return DevScores(context.folder).write(DevScoresRecord(series=series))


def scores_of(
    context: Context, model: Checkpoint, dev: EvaluationSet, settings: DecodingSettings, translators: "Translators"
) -> dict[str, float]:
    """Returns a model's BLEU scores on the dev set, or a parser's F1, without keeping its output.

    Raises UserError if it cannot be decoded or scored.
    """
    from pipeline.evaluation import decoding, scoring

    with temporary_folder(context.folder) as decoded, temporary_folder(context.folder) as scored:
        silent = Context(decoded, build=context.build)  # which ends it if the stage loses its lock
        hypotheses = decoding.decode(silent, model, dev, settings, translators=translators)
        within = Context(scored)
        if dev.gold_trees.exists():
            return {"dev_f1": score_parses(within, rebuild_parses(within, hypotheses, dev)).load().total.f1}
        bleu = scoring.score(within, hypotheses, dev, bleu_only=True).load()
    return {f"dev_{name}": score for name, score in bleu.defined.items()}
