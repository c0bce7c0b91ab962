"""Scores each checkpoint that a training kept on the dev set, by itself: how BLEU, or a parser's F1, grows.

measured = measure(Context(folder), run, corpus, DecodingSettings())
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.evaluation.parser_choice import SPLIT, f1_of
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Checkpoint, Corpus, TrainingRun
from pipeline.store.figures import Figures


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
        return f"{name} " + ", ".join(f"{score:.2f} after {update}" for update, score in scores.items())


def measure(context: Context, run: TrainingRun, corpus: Corpus, settings: DecodingSettings) -> DevScores:
    """Decodes and scores the dev set with every checkpoint that `run` kept, one after another.

    Raises UserError where a checkpoint is damaged, or where it cannot be decoded or scored.
    """
    from pipeline.evaluation.averaging import each_kept  # torch is slow to import, and the artifact does not need it

    series: dict[str, dict[int, float]] = {}
    for update, checkpoint in each_kept(context, run):
        if corpus.symbols:
            scores = {"dev_f1": f1_of(context, checkpoint, corpus, settings, SPLIT)}
        else:
            scores = _bleu(context, checkpoint, corpus, settings)
        for name, score in scores.items():
            series.setdefault(name, {})[update] = score
    measured = DevScores(context.folder)
    measured.write(DevScoresFigures(series=series))
    return measured


def _bleu(context: Context, checkpoint: Checkpoint, corpus: Corpus, settings: DecodingSettings) -> dict[str, float]:
    """Returns both BLEU scores of a checkpoint's translations, which are not kept."""
    from pipeline.evaluation.decoding import decode
    from pipeline.evaluation.scoring import score

    with TemporaryDirectory(dir=context.folder) as temporary:
        translated, scored = Path(temporary, "translated"), Path(temporary, "scored")
        for folder in (translated, scored):
            folder.mkdir()
        hypotheses = decode(Context(translated), checkpoint, corpus, settings, [SPLIT])
        scores = score(Context(scored), hypotheses, corpus, [SPLIT]).load().test_sets[SPLIT]
    return {"dev_paper_bleu": scores.paper_bleu, "dev_sacrebleu": scores.sacrebleu}
