"""Trains a small Transformer with one of the attention functions compared in §3.2.1.

train(Context(folder), dataset, "additive", settings).load().dev_perplexity
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace

from pipeline.complexity.layer_types.sizes import AttentionFunction
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import METRICS, EncodedDataset
from pipeline.store.records import Record
from pipeline.text.lines import read_lines


class AttentionTrainingRecord(Record):
    """`attention_training.json`: the result of a run."""

    function: AttentionFunction
    d_k: int
    seed: int
    learning_rate_scale: float = 0.5
    """Multiple of the paper's rate; missing in older files."""
    updates: int
    parameters: int
    """Including the attention function's."""
    dev_nll: float
    """Final nats per target token of the dev split, END_ID included, without label smoothing."""
    dev_perplexity: float
    train_s: float
    """Time spent on updates."""


class AttentionTraining(JsonArtifact[AttentionTrainingRecord]):
    """`attention_training.json`, and the curve in `metrics.jsonl`; weights are not kept."""

    record_file = "attention_training.json"

    @property
    def summary(self) -> str:
        """The perplexity."""
        return f"dev perplexity {self.load().dev_perplexity:.2f}"


def train(
    context: Context,
    dataset: EncodedDataset,
    function: AttentionFunction,
    settings: TrainingSettings,
    tries: Sequence[AttentionTraining] = (),
) -> AttentionTraining:
    """Trains in this process, on CPUs, resuming an interrupted call's work in `context.folder`.

    The learning rate is the best of `tries`, runs of another seed, if there are any. Raises UserError like
    `loop.Training`.
    """
    from model.transformer import Transformer  # torch is slow to import, and the artifact does not need it
    from pipeline.complexity.layer_types.attention_functions import use
    from pipeline.training.checkpoints import KEPT, RECOVERY
    from pipeline.training.loop import Training
    from pipeline.training.workers import Workers

    if tries:
        best = min((tried.load() for tried in tries), key=lambda record: record.dev_nll)
        optimizer = replace(settings.optimizer, learning_rate_scale=best.learning_rate_scale)
        settings = settings.model_copy(update={"optimizer": optimizer})
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
    measured = json.loads(line)  # a run ends with a validation
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
    for name in (RECOVERY, KEPT):  # in this order, since the first relies on the second
        shutil.rmtree(context.folder / name)
    return trained
