"""The stage that trains a small Transformer with one of the attention functions that §3.2.1 compares.

train(Context(folder), dataset, "additive", settings).load().dev_perplexity
"""

import json
import shutil
from dataclasses import dataclass

from pipeline.complexity.layer_types.sizes import AttentionFunction
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import METRICS, EncodedDataset
from pipeline.store.records import Record
from pipeline.text.lines import read_lines


class AttentionTrainingRecord(Record):
    """`attention_training.json`: what the training reached."""

    function: AttentionFunction
    d_k: int
    seed: int
    learning_rate_scale: float = 0.5
    """The multiple of the paper's rate; files of earlier versions leave it out."""
    updates: int
    parameters: int
    """Those of the function included."""
    dev_nll: float
    """Nats per target token of the dev split after the last update, END_ID counted; without label smoothing."""
    dev_perplexity: float
    train_s: float
    """Seconds spent on updates."""


@dataclass(frozen=True)
class AttentionTraining(JsonArtifact[AttentionTrainingRecord]):
    """`attention_training.json`, and the curve in `metrics.jsonl`; the weights are not kept."""

    record_file = "attention_training.json"

    @property
    def summary(self) -> str:
        """The perplexity."""
        return f"dev perplexity {self.load().dev_perplexity:.2f}"


def train(
    context: Context, dataset: EncodedDataset, function: AttentionFunction, settings: TrainingSettings
) -> AttentionTraining:
    """Trains in this process, on CPUs, from where an interrupted call has left off in `context.folder`.

    Raises UserError whenever `loop.Training` does.
    """
    from model.transformer import Transformer  # torch is slow to import, and the artifact does not need it
    from pipeline.complexity.layer_types.attention_functions import use
    from pipeline.training.checkpoints import KEPT, RECOVERY
    from pipeline.training.loop import Training
    from pipeline.training.workers import Workers

    training = Training(
        Workers(),
        dataset.on_this_node(context.scratch),
        settings,
        context.folder,
        context.emit,
        make=lambda config: use(Transformer(config), function),
    )
    run = training.run()
    *_, line = read_lines(context.folder / METRICS)
    measured = json.loads(line)  # a training ends with a measurement on the dev split
    trained = AttentionTraining(context.folder)
    trained.write(
        AttentionTrainingRecord(
            function=function,
            d_k=settings.model.d_k,
            seed=settings.seed,
            learning_rate_scale=settings.optimizer.learning_rate_scale,
            updates=run.updates,
            parameters=run.parameters,
            dev_nll=measured["dev_nll"],
            dev_perplexity=measured["dev_perplexity"],
            train_s=run.train_s,
        )
    )
    for name in (RECOVERY, KEPT):  # in this order: the one relies on the other
        shutil.rmtree(context.folder / name)
    return trained
