"""The training loop of one worker (paper §5), on torch and torch.distributed only (no Ray).

With n workers, worker r computes every n-th unit of an update from number r on, in as many passes as it needs.
Gradients are summed over workers and divided once by the update's number of target tokens. Dropout is a function of
seed, update and sentence pair (`model.dropout`), so workers and passes change only the order of summation.

    record = Training(Workers(), dataset, TrainingSettings(updates=100), folder).run()   # one worker
"""

import gc
import logging
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from model.architectures import make_model
from model.config import SearchConfig, TransformerConfig
from model.loss import perplexity_of
from model.training_step import TrainingStep
from pipeline.artifacts import METRICS, EncodedDataset
from pipeline.context import Listener, ignore
from pipeline.environment import Laps
from pipeline.errors import UserError
from pipeline.hardware import call_mkl_once, dtype_name, make_deterministic
from pipeline.memory import garbage_frozen, gpu_snapshot, is_out_of_memory, reset_peak_memory
from pipeline.records import TrainingRecord
from pipeline.settings import LONGEST_TOKENS, TrainingSettings
from pipeline.store.build import Build
from pipeline.text.encoding import EncodedSplit
from pipeline.training.checkpoints import (
    RECOVERY,
    CheckpointWriter,
    TrainingState,
    load_newest,
    restore_all,
    truncate_metrics,
)
from pipeline.training.devices import begin_segment, negotiate
from pipeline.training.preflight import capture, try_largest
from pipeline.training.profiling import UpdateProfiler
from pipeline.training.report import Applied, Report
from pipeline.training.updates import Update, Updates
from pipeline.training.validation import check_replicas, samples, split_sums
from pipeline.training.workers import ExactSum, Workers

log = logging.getLogger(__name__)

UPDATE_TIMEOUT = timedelta(minutes=10)
"""Timeout of collectives during training. Rank 0 may be waiting for a slow store to accept a checkpoint."""
COLLECT_UPDATES = 500
"""Updates between garbage collections, at all workers at once; validation and kept checkpoints trigger others."""


class Data(NamedTuple):
    """The splits that a run trains and validates on."""

    train: EncodedSplit
    dev: EncodedSplit
    longest_tokens: int
    """The longest length that the model will see."""

    @classmethod
    def open(cls, dataset: EncodedDataset, model: TransformerConfig) -> "Data":
        """Opens a dataset. Raises UserError if it does not fit the model, or no dev pair is short enough."""
        dataset.check_vocabulary(model.vocabulary_size)
        train, dev = EncodedSplit.open(dataset, "train"), EncodedSplit.open(dataset, "dev")
        rows = dev.computed_rows
        if not len(rows):
            raise UserError(
                f"{dataset.folder} has no dev pair of at most {LONGEST_TOKENS} tokens for validation; "
                "add dev text, or split its lines"
            )
        longest_tokens = max(train.longest_tokens, *(int(side.max()) for side in dev.lengths_of(rows)))
        if model.positions == "learned" and longest_tokens > model.max_positions:
            raise UserError(
                f"a sentence has {longest_tokens} tokens, but learned positions end at max_positions = "
                f"{model.max_positions}; raise max_positions, lower the encoding's max_tokens, or split the longest "
                "lines of the dev text"
            )
        return cls(train, dev, longest_tokens)

    @property
    def dev_left_out(self) -> int:
        """The number of dev pairs too long to be computed."""
        return len(self.dev) - len(self.dev.computed_rows)


class Due(NamedTuple):
    """What follows an update, at every rank. If nothing does, the host need not synchronise with the device."""

    end: bool
    metrics: bool
    validation: bool
    kept: bool
    """A checkpoint follows that the finished run keeps."""


class Training:
    """One worker's share of a run of `settings.updates`, resumed from the newest intact checkpoint in `folder`.

    Every rank constructs one with the same arguments. Rank 0 writes checkpoints and `metrics.jsonl`, shares them with
    other nodes through `build`, and emits events; other ranks do not use `folder`.

    Every method raises UserError at every rank if the settings do not fit the dataset, a device does not support the
    run's dtype, an update does not fit into memory, the disk is full, or a loss or gradient is not finite. Others,
    as of memory that runs out later, are raised at one rank, while others may wait: the caller must end all processes.
    """

    def __init__(
        self,
        workers: Workers,
        dataset: EncodedDataset,
        settings: TrainingSettings,
        folder: Path,
        emit: Listener = ignore,
        build: Build | None = None,
        start: Laps | None = None,
    ) -> None:
        self.workers, self.settings, self.folder, self.start = workers, settings, folder, start or Laps()
        call_mkl_once()
        reset_peak_memory(workers.device)
        self.writer = CheckpointWriter(folder, build)
        if workers.device == "cpu":
            torch.set_num_threads(settings.cpus_per_worker)
        elif settings.exact_reduction:
            make_deterministic()
        with workers.raise_at_all_ranks():
            self.data = Data.open(dataset, settings.model)
            # Other ranks need not read the whole dataset.
            checkpoint, state = self._newest() if workers.rank == 0 else (None, TrainingState())
        self.state = workers.broadcast_object(state)
        self.negotiated = negotiate(workers, settings, self.state, folder / RECOVERY)
        self.state.dtype = dtype_name(self.negotiated.dtype)
        train = self.data.train
        epoch = self.state.target_tokens // max(train.target_tokens, 1)  # an epoch has all target tokens once
        self.updates = Updates(train, settings, workers, self.negotiated.dtype, self.negotiated.form, epoch)
        self.start.end("data", "making the model")
        self.step = self._make_step()
        restore_all(workers, checkpoint, self.step)  # seeded draws differ between CPU models in the last bits
        self.start.end("model", "compiling layers, and trying the largest passes")
        self.exact_sum = ExactSum(workers, self.step.sums) if settings.exact_reduction else None
        if workers.rank == 0:
            truncate_metrics(folder / METRICS, self.state.update)
        self.report = Report(workers, settings, self.state, self.updates, folder, self.writer.build, emit)
        profiled, done = settings.profile_updates if workers.rank == 0 else None, self.state.update
        self.profiler = UpdateProfiler(profiled, done, workers.device, self.writer)
        self.is_ready = False  # the largest passes were not tried yet

    def _newest(self) -> tuple[Path | None, TrainingState]:
        """Returns the newest intact checkpoint, if any, and the state to resume from."""
        identity = {**self.settings.identity(), "dataset": self.data.train.sha256()}
        newest = load_newest(self.folder, identity, self.settings.kept_updates)
        self.writer.set_aside(newest[0] if newest else None)
        return newest or (None, TrainingState(identity=identity))

    def _make_step(self) -> TrainingStep:
        """Returns the step of a model drawn from the seed, on the device."""
        settings, (dtype, compiled, form, _) = self.settings, self.negotiated
        torch.manual_seed(settings.seed)
        master = make_model(settings.model).to(self.workers.device)
        master.reserve_positions(self.data.longest_tokens + SearchConfig.max_extra_tokens)  # a graph reads the table
        return TrainingStep(master, settings.optimizer, dtype, compiled, form == "packed")

    def run(self) -> TrainingRecord:
        """Trains to the end; returns the content of run.json."""
        with self.writer, closing(self.profiler), closing(self.updates):
            if self.workers.rank == 0 and self.state.update == self.settings.updates:  # killed just before
                self.writer.prune(1)
            self.train()
        return self.summary()

    def train(self, until: int | None = None) -> None:
        """Computes the remaining updates, or those up to `until`, with metrics, validation and checkpoints.

        The host waits for the device only to report: at logged updates, validation and checkpoints, and at rank 0 about
        once a second. Since that depends on wall-clock time, nothing else may depend on it.
        """
        last = min(until or self.settings.updates, self.settings.updates)
        if self.state.update >= last:
            return
        if not self.is_ready:
            self._get_ready()
        try:
            with garbage_frozen():
                self._train(last)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            remedy = f"end other programs, or set pass_tokens{gpu_snapshot(self.folder, self.workers.rank)}"
            raise UserError(f"memory ran out after update {self.state.update}: {error}; {remedy}") from error

    def _get_ready(self) -> None:
        """Tries the largest passes, captures them if they are packed, and begins a segment."""
        captured = False
        try_largest(self.workers, self.step, self.updates, self.data.dev, self.folder)
        self.start.end("largest", "recording a CUDA graph" if self.negotiated.form == "packed" else "")
        if self.negotiated.form == "packed":
            captured = capture(self.workers, self.step, self.updates, self.negotiated.devices)
            try_largest(self.workers, self.step, self.updates, self.data.dev, self.folder)  # beside the graph
            self.start.end("capture", "measuring the GPUs")
        if (left_out := self.data.dev_left_out) and self.workers.rank == 0:
            excluded = f"have a side of more than {LONGEST_TOKENS} tokens and are excluded from dev loss and perplexity"
            log.warning(f"%s of %s dev pairs {excluded}; split their lines", left_out, len(self.data.dev))
        begin_segment(self.state, self.workers, self.negotiated, self.settings.cpus_per_worker, captured)
        self.workers.set_timeout(UPDATE_TIMEOUT)  # all have finished slow start-up work
        gc.collect()
        self.start.end("rest")
        self.is_ready = True

    def _train(self, last: int) -> None:
        """Computes the updates up to `last`."""
        self.report.begin()
        for update in self.updates.between(self.state.update, last):
            with self.profiler.around(self.state.update + 1):
                self._update(update)
            due = self._due(last)
            if self.state.update % COLLECT_UPDATES == 0 or due.validation or due.kept:
                gc.collect()
            if not (any(due) or self.report.progress_is_due):
                continue
            self.report.updates(check=any(due), log=due.metrics)
            if due.validation:
                self._validate()
            self._save(due)
            self.report.resume()

    def _due(self, last: int) -> Due:
        """Decides what follows the update just queued, if `train` stops at update `last`."""
        settings, number = self.settings, self.state.update
        end = number == settings.updates
        return Due(
            end=end,
            metrics=number == last or number % settings.log_updates == 0,
            validation=end or number % settings.validation_updates == 0,
            kept=number in settings.kept_updates,
        )

    def _update(self, update: Update) -> None:
        """Queues one update on the device without synchronising."""
        number = self.state.update + 1
        for part in update.mine:
            for batch in part.batches:
                self.step.accumulate(batch)
            if self.exact_sum:
                self.exact_sum.add(part.number)
        if self.exact_sum:
            self.exact_sum.reduce(self.settings.most_workers)
        else:
            self.workers.all_reduce(self.step.sums)
        results = self.step.apply(number, update.target_tokens)
        if not self.negotiated.rounds_identically:
            self.workers.broadcast(self.step.adam.weights_P)
            self.step.copy_weights()
        self._count(update, results)

    def _count(self, update: Update, results: Tensor) -> None:
        """Adds an update to the state; its results stay on the device."""
        state = self.state
        epoch = state.update // self.updates.in_epoch
        state.update += 1
        state.source_tokens += update.source_tokens
        state.target_tokens += update.target_tokens
        state.computed_tokens += update.computed_tokens
        rate = self.step.learning_rate(state.update)
        self.report.unread.append(
            Applied(state.update, epoch, update.source_tokens, update.target_tokens, rate, results)
        )

    def _validate(self) -> None:
        """Computes loss and perplexity of the dev split, divided among the workers."""
        smoothing = self.settings.optimizer.label_smoothing
        check_replicas(self.workers, self.step.adam.weights_P, self.state.update)
        with self.step.uncompiled():
            sums = split_sums(self.step.model, self.data.dev, smoothing, self.workers.rank, self.workers.size)
            shown = [] if self.workers.rank else samples(self.step.model, self.data.dev)
        self.workers.all_reduce(sums)
        loss, nll, n_tokens = sums.tolist()
        nll = nll / n_tokens
        line = {"update": self.state.update, "dev_loss": loss / n_tokens, "dev_nll": nll}
        self.report.write(
            line | {"dev_perplexity": perplexity_of(nll), "samples": shown, "train_s": self.state.train_s}
        )
        if self.workers.rank == 0:
            self.writer.keep_beside(METRICS)

    def _save(self, due: Due) -> None:
        """Passes a checkpoint to the writer if one is due, and waits for the last one.

        Only rank 0 writes, and no result depends on when a recovery checkpoint is due.
        """
        recovery = due.end or self.writer.recovery_is_due
        if self.workers.rank or not (due.kept or recovery) or not self.report.is_finite:
            return
        self.writer.begin(self.step, self.state, kept=due.kept, recovery=recovery, end=due.end)
        if due.end:
            self.writer.wait()

    def summary(self) -> TrainingRecord:
        """Returns the content of run.json."""
        settings, state = self.settings, self.state
        return TrainingRecord(
            settings=settings,
            updates=state.update,
            epochs=state.update / self.updates.in_epoch,
            train_s=state.train_s,
            data_wait_s=state.data_wait_s,
            peak_memory_gb=state.peak_memory_gb,
            start_s=self.start,
            loop_s=time.monotonic() - self.start.began_s,
            source_tokens=state.source_tokens,
            target_tokens=state.target_tokens,
            padding_fraction=1 - (state.source_tokens + state.target_tokens) / state.computed_tokens,
            segments=tuple(state.segments),
            counted_flop=state.update * self.updates.mean_flop,
            parameters=sum(parameter.numel() for parameter in self.step.master.parameters()),
            checkpoints=settings.kept_updates,
            dev_left_out=self.data.dev_left_out,
        )
