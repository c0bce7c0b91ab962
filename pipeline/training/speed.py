"""Times training of several models in interleaved rounds, so that other load slows all alike.

    time_(Context(folder), dataset, [base, recurrent]).load().models[0].update_s

First, the loop trains each model on the next updates of the same plan. Then single updates are timed on full batches of
random sentences of one length, padded and uncompiled, to show how speed depends on sentence length.

Shapes: B pairs, L tokens of each sentence.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from model.config import END_ID
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import EncodedDataset
from pipeline.store.records import Record

if TYPE_CHECKING:
    import torch

ROUNDS = 5
UPDATES = 20
"""Updates of the plan timed per round, and updates before the first."""
LENGTHS = 8, 16, 32, 64, 128
"""Tokens per sentence; an update has as many sentences as its token budget allows."""
UPDATES_OF_LENGTH = 3
"""Updates of each length timed per round."""
NEVER = 10**9


class ModelSpeed(Record):
    """Training speed of one model, by round."""

    architecture: str
    parameters: int
    update_s: tuple[float, ...]
    """Seconds per update of the plan."""
    tokens_s: dict[int, tuple[float, ...]]
    """Target tokens per second, by sentence length."""

    @property
    def mean_update_s(self) -> float:
        """The mean over rounds."""
        return sum(self.update_s) / len(self.update_s)


class TrainingSpeedRecord(Record):
    """`training_speed.json`: training speed of several models on one machine."""

    models: tuple[ModelSpeed, ...]
    budget_tokens: int
    device_name: str
    threads: int
    dtype: str
    torch_version: str


class TrainingSpeed(JsonArtifact[TrainingSpeedRecord]):
    """`training_speed.json`: training speed of several models on one machine."""

    record_file = "training_speed.json"

    @property
    def summary(self) -> str:
        """The mean time per update of each model."""
        return ", ".join(
            f"{1e3 * model.mean_update_s:.0f} ms a {model.architecture} update" for model in self.load().models
        )


def time_(
    context: Context, dataset: EncodedDataset, settings: Sequence[TrainingSettings], conditions: Sequence[object] = ()
) -> TrainingSpeed:
    """Times models with one worker on the device of `context`. Raises UserError like `loop.Training`.

    `conditions` are what speed depends on though no result does: they are only part of the stage's fingerprint.
    """
    import torch  # slow to import, and the artifact does not need it

    from pipeline.hardware import device_name, dtype_name
    from pipeline.training.loop import Training
    from pipeline.training.workers import Workers

    dataset, folder = dataset.on_this_node(context.scratch), context.folder / "timed"
    update_s: list[list[float]] = [[] for _ in settings]
    with ExitStack() as stack:
        trainings = []
        for number, of_model in enumerate(settings):
            (folder / f"{number}").mkdir(parents=True)
            training = Training(Workers(device=context.device), dataset, _endless(of_model), folder / f"{number}")
            stack.enter_context(training.writer)
            stack.enter_context(closing(training.updates))
            training.writer.writes_recovery = False
            training.train(until=UPDATES)
            trainings.append(training)
        for done in range(ROUNDS):
            context.progress(done, 2 * ROUNDS, "rounds")
            for training, of_training_s in zip(trainings, update_s, strict=True):
                before_s = training.state.train_s
                training.train(until=training.state.update + UPDATES)
                of_training_s.append((training.state.train_s - before_s) / UPDATES)
    dtype, parameters = trainings[0].negotiated.dtype, [training.summary(0).parameters for training in trainings]
    del trainings, training
    timed = zip(settings, parameters, update_s, _tokens_s(context, settings, dtype), strict=True)
    models = tuple(
        ModelSpeed(
            architecture=of_model.model.architecture,
            parameters=n_parameters,
            update_s=tuple(rounds_s),
            tokens_s=tokens_s,
        )
        for of_model, n_parameters, rounds_s, tokens_s in timed
    )
    shutil.rmtree(folder)
    return TrainingSpeed(context.folder).write(
        TrainingSpeedRecord(
            models=models,
            budget_tokens=settings[0].budget_tokens,
            device_name=device_name(context.device),
            threads=torch.get_num_threads(),
            dtype=dtype_name(dtype),
            torch_version=torch.__version__,
        )
    )


def _endless(settings: TrainingSettings) -> TrainingSettings:
    """Returns the settings without validation or checkpoints during timing."""
    never = dict.fromkeys(("updates", "checkpoint_updates", "validation_updates", "log_updates"), NEVER)
    return settings.model_copy(update={**never, "workers": 1, "profile_updates": None})


def _tokens_s(
    context: Context, settings: Sequence[TrainingSettings], dtype: "torch.dtype"
) -> list[dict[int, tuple[float, ...]]]:
    """Returns each model's target tokens per second by sentence length, by round."""
    import torch

    from model.architectures import make_model
    from model.batch import Batch
    from model.training_step import TrainingStep

    draw = torch.Generator().manual_seed(1)
    limits = [of_model.model.max_positions for of_model in settings if of_model.model.positions == "learned"]
    lengths = [length for length in LENGTHS if length <= min(limits, default=length)]
    steps = []
    for of_model in settings:
        torch.manual_seed(of_model.seed)
        model = make_model(of_model.model).to(context.device)
        model.reserve_positions(max(lengths))
        steps.append(TrainingStep(model, of_model.optimizer, dtype, updates=NEVER))

    def seconds(step: TrainingStep, batch: Batch, n_updates: int) -> float:
        began_s = time.perf_counter()
        for update in range(1, n_updates + 1):
            step.accumulate(batch, seed=update)
            step.apply(update, len(batch.targets_N)).tolist()  # waits for the device
        return time.perf_counter() - began_s

    batches = {}
    for length in lengths:
        n_pairs = max(1, settings[0].budget_tokens // length)
        source_BL, target_BL = torch.randint(
            END_ID + 1, settings[0].model.vocabulary_size, (2, n_pairs, length), generator=draw
        )
        batches[length] = Batch.padded(source_BL, target_BL, dtype).to(context.device), n_pairs * length
    rates: list[dict[int, list[float]]] = [{length: [] for length in lengths} for _ in settings]
    for done in range(ROUNDS + 1):  # the first, in which kernels of new shapes are chosen, does not count
        context.progress(ROUNDS + min(done, ROUNDS - 1), 2 * ROUNDS, "rounds")
        for length, (batch, n_tokens) in batches.items():
            for step, of_model_rates in zip(steps, rates, strict=True):
                took_s = seconds(step, batch, UPDATES_OF_LENGTH)
                if done:
                    of_model_rates[length].append(UPDATES_OF_LENGTH * n_tokens / took_s)
    return [{length: tuple(values) for length, values in of_model.items()} for of_model in rates]
