"""Scores each checkpoint that a training kept on the dev set, by itself: how BLEU grows with the updates.

measured = measure(Context(folder), run, corpus, DecodingSettings())
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Corpus, TrainingRun
from pipeline.store.figures import BleuScores, Figures

SPLIT = "dev"


class DevBleuFigures(Figures):
    """`dev_bleu.json`: the scores of the dev set, by the update of the checkpoint, in order."""

    checkpoints: Mapping[int, BleuScores]


class DevBleu(JsonArtifact[DevBleuFigures]):
    """`dev_bleu.json`; neither the weights nor the translations are kept."""

    figures_file = "dev_bleu.json"

    @property
    def summary(self) -> str:
        """The sacreBLEU of every checkpoint."""
        scored = self.load().checkpoints.items()
        return "sacreBLEU " + ", ".join(f"{scores.sacrebleu:.2f} after {update}" for update, scores in scored)


def measure(context: Context, run: TrainingRun, corpus: Corpus, settings: DecodingSettings) -> DevBleu:
    """Translates and scores the dev set with every checkpoint that `run` kept, one after another.

    Raises UserError where a checkpoint is damaged, or where it cannot be decoded or scored.
    """
    from pipeline.evaluation.averaging import each_kept  # torch is slow to import, and the artifact does not need it
    from pipeline.evaluation.decoding import decode
    from pipeline.evaluation.scoring import score

    checkpoints = {}
    for update, checkpoint in each_kept(context, run):
        with TemporaryDirectory(dir=context.folder) as temporary:
            translated, scored = Path(temporary, "translated"), Path(temporary, "scored")
            for folder in (translated, scored):
                folder.mkdir()
            hypotheses = decode(Context(translated), checkpoint, corpus, settings, [SPLIT])
            checkpoints[update] = score(Context(scored), hypotheses, corpus, [SPLIT]).load().test_sets[SPLIT]
    measured = DevBleu(context.folder)
    measured.write(DevBleuFigures(checkpoints=checkpoints))
    return measured
