"""Scores each checkpoint that a training of a parser kept on the dev set, by itself: how F1 grows with the updates.

measured = measure(Context(folder), run, corpus, PARSING)
"""

from collections.abc import Mapping

from pipeline.evaluation.parser_choice import SPLIT, f1_of
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Corpus, TrainingRun
from pipeline.store.figures import Figures


class DevF1Figures(Figures):
    """`dev_f1.json`: F1 on the dev set in percent, by the update of the checkpoint, in order."""

    checkpoints: Mapping[int, float]


class DevF1(JsonArtifact[DevF1Figures]):
    """`dev_f1.json`; neither the weights nor the trees are kept."""

    figures_file = "dev_f1.json"

    @property
    def summary(self) -> str:
        """The F1 of every checkpoint."""
        return "F1 " + ", ".join(f"{f1:.2f} after {update}" for update, f1 in self.load().checkpoints.items())


def measure(context: Context, run: TrainingRun, corpus: Corpus, settings: DecodingSettings) -> DevF1:
    """Parses and scores the dev set with every checkpoint that `run` kept, one after another.

    Raises UserError where a checkpoint is damaged, or where it cannot be decoded or scored.
    """
    from pipeline.evaluation.averaging import each_kept  # torch is slow to import, and the artifact does not need it

    checkpoints = {
        update: f1_of(context, checkpoint, corpus, settings, SPLIT) for update, checkpoint in each_kept(context, run)
    }
    measured = DevF1(context.folder)
    measured.write(DevF1Figures(checkpoints=checkpoints))
    return measured
