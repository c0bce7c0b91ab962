"""The training loop of one worker (paper §5), on torch and torch.distributed only (no Ray).

With n workers, worker r computes every n-th unit of an update from number r on, in as many passes as it needs.
Gradients are summed over workers and divided once by the update's number of target tokens. Dropout is a function of
seed, update and sentence pair (`model.dropout`), so workers and passes change only the order of summation.

    record = Training(Workers(), dataset, TrainingSettings(updates=100), folder).run()   # one worker
"""

import gc
import json
import logging
import math
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.architectures import make_model
from model.config import TransformerConfig
from model.encoder_decoder import EncoderDecoder
from model.loss import perplexity_of
from model.training_step import TrainingStep
from pipeline.errors import UserError
from pipeline.hardware import dtype_name, make_deterministic
from pipeline.memory import garbage_frozen
from pipeline.settings import LONGEST_TOKENS, TrainingSettings
from pipeline.store.artifact import ignore
from pipeline.store.artifacts import METRICS, EncodedDataset
from pipeline.store.records import TrainingRecord
from pipeline.store.scratch import Scratch
from pipeline.text.encoding import EncodedSplit
from pipeline.training.applied import Applied, check_finite, first_broken
from pipeline.training.checkpoints import (
    RECOVERY,
    CheckpointWriter,
    TrainingState,
    load_newest,
    restore_all,
    truncate_metrics,
)
from pipeline.training.devices import begin_segment, negotiate
from pipeline.training.exact import ExactSum
from pipeline.training.profiling import UpdateProfiler
from pipeline.training.trial import capture, try_largest
from pipeline.training.updates import Update, Updates
from pipeline.training.validation import check_replicas, split_sums
from pipeline.training.workers import Workers

log = logging.getLogger(__name__)

UPDATE_TIMEOUT = timedelta(minutes=10)
"""Timeout of collectives during training. Rank 0 may be waiting for a slow store to accept a checkpoint."""
PROGRESS_S = 1.0
"""Minimum time between progress events."""
PREEMPTION_S = 5.0
"""Minimum time between preemption checks with Ray Train, each of which synchronises all workers."""
COLLECT_UPDATES = 500
"""Updates between garbage collections, at all workers at once; validation and kept checkpoints trigger others."""
CHECK_S = 5.0
"""Minimum time between checks that no other process has taken over the run."""
Listener = Callable[[dict[str, Any]], None]


class Schedule(NamedTuple):
    """What follows an update, at every rank. If nothing does, the host need not synchronise with the device."""

    end: bool
    metrics: bool
    validation: bool
    kept: bool
    """A checkpoint follows that the finished run keeps."""


class Training:
    """One worker's share of a run of `settings.updates`, resumed from the newest intact checkpoint in `folder`.

    Every rank constructs one with the same arguments. Rank 0 writes checkpoints and `metrics.jsonl`, shares them with
    other nodes through `scratch`, and emits events; other ranks do not use `folder`.

    `is_preempted` returns whether a machine is about to be preempted. All ranks call it at the same logged updates, at
    most every PREEMPTION_S, and it must return the same at all: Ray Train's waits for all ranks. Once it returns True,
    a checkpoint is written immediately, and training continues as long as it can.

    `make` builds the model from the seeded random state. Checkpoints do not record it, so resume with the same one.

    Every method raises UserError at every rank if the settings do not fit the dataset, a device does not support the
    run's dtype, an update does not fit into memory, the disk is full, or a loss or gradient is not finite. Any other
    error is raised only at its rank, while others may be waiting for it: the caller must end their processes.
    """

    def __init__(
        self,
        workers: Workers,
        dataset: EncodedDataset,
        settings: TrainingSettings,
        folder: Path,
        emit: Listener = ignore,
        is_preempted: Callable[[], bool] = lambda: False,
        scratch: Scratch | None = None,
        make: Callable[[TransformerConfig], EncoderDecoder] = make_model,
    ) -> None:
        self.began_s = time.monotonic()
        self.workers, self.settings, self.folder = workers, settings, folder
        self.kept_updates = frozenset(settings.kept_updates)
        self.emit = emit if workers.rank == 0 else ignore
        self.is_preempted, self.preempted = is_preempted, False
        self.next_preemption_check = 0
        """The first update after which to call `is_preempted` again."""
        self.writer = CheckpointWriter(folder, scratch)
        if workers.device == "cpu":
            torch.set_num_threads(settings.threads)
        elif settings.exact_reduction:
            make_deterministic()
        checkpoint: Path | None = None
        self.state = TrainingState()
        with workers.raise_at_all_ranks():
            dataset.check_vocabulary(settings.model.vocabulary_size)
            self.split, self.dev = EncodedSplit.open(dataset, "train"), EncodedSplit.open(dataset, "dev")
            longest = self._longest_tokens()
            if workers.rank == 0:  # other ranks need not read the whole dataset
                checkpoint, self.state = self._newest()
        self.state = workers.broadcast_object(self.state)
        self.negotiated = negotiate(workers, settings, self.state, folder / RECOVERY)
        self.state.dtype = dtype_name(self.negotiated.dtype)
        epoch = self.state.target_tokens // max(self.split.target_tokens, 1)  # an epoch has all target tokens once
        self.updates = Updates(self.split, settings, workers, self.negotiated.dtype, self.negotiated.form, epoch)
        torch.manual_seed(settings.seed)
        master = make(settings.model).to(workers.device)
        master.reserve_positions(longest)
        self.step = TrainingStep(
            master,
            settings.optimizer,
            self.negotiated.dtype,
            updates=settings.updates,
            compiled=self.negotiated.compiled,
            packed=self.negotiated.form == "packed",
        )
        restore_all(workers, checkpoint, self.step)  # seeded draws differ between CPU models in the last bits
        if workers.rank == 0:
            truncate_metrics(folder / METRICS, self.state.update)
        self.exact_sum = ExactSum(workers, self.step) if settings.exact_reduction else None
        profiled = settings.profile_updates if workers.rank == 0 else None
        self.profiler = UpdateProfiler(
            profiled, self.state.update, workers.device, folder, self.writer.keep_beside, self._warn
        )
        self.unread: list[Applied] = []
        self.shown_s = self.checkpoint_s = 0.0
        self.largest_tried = False

    def _longest_tokens(self) -> int:
        """Returns the longest length the model will see. Raises UserError if that is too long, or no dev pair fits."""
        dev, model = self.dev.computed_rows, self.settings.model
        if not len(dev):
            raise UserError(
                f"{self.dev.dataset.folder} has no dev pair of at most {LONGEST_TOKENS} tokens for validation; "
                "add dev text, or split its lines"
            )
        longest = max(self.split.longest_tokens, *(int(side.max()) for side in self.dev.lengths_of(dev)))
        if model.positions == "learned" and longest > model.max_positions:
            raise UserError(
                f"a sentence has {longest} tokens, but learned positions end at max_positions = {model.max_positions}; "
                "raise max_positions, lower the encoding's max_tokens, or split the longest lines of the dev text"
            )
        return longest

    @property
    def _dev_left_out(self) -> int:
        """The number of dev pairs too long to be computed."""
        return len(self.dev) - len(self.dev.computed_rows)

    def _newest(self) -> tuple[Path | None, TrainingState]:
        """Returns the newest intact checkpoint, if any, and the state to resume from."""
        identity = {**self.settings.identity(), "dataset": self.split.sha256()}
        newest = load_newest(self.folder, identity, self.settings.kept_updates)
        self.writer.set_aside(newest[0] if newest else None)
        return newest or (None, TrainingState(identity=identity))

    def run(self) -> TrainingRecord:
        """Trains to the end; returns the content of run.json."""
        with self.writer, closing(self.profiler), closing(self.updates):
            if self.workers.rank == 0 and self.state.update == self.settings.updates:  # killed just before
                self.writer.prune(1)
            self.train()
        return self.summary(loop_s=time.monotonic() - self.began_s)

    def train(self, until: int | None = None) -> None:
        """Computes the remaining updates, or those up to `until`, with metrics, validation and checkpoints.

        The host synchronises with the device only to report: at logged updates, validation and checkpoints. Rank 0 also
        syncs about once a second to report progress. Since that depends on wall-clock time, nothing else may depend on
        it.
        """
        state = self.state
        last = min(until or self.settings.updates, self.settings.updates)
        if state.update >= last:
            return
        if not self.largest_tried:
            smoothing = self.settings.optimizer.label_smoothing
            try_largest(self.workers, self.step, self.updates, self.dev, smoothing)
            captured = False
            if self.negotiated.form == "packed":
                captured = capture(self.workers, self.step, self.updates, self.negotiated.devices)
                if not captured:  # a failed capture retains memory
                    try_largest(self.workers, self.step, self.updates, self.dev, smoothing)
            self.largest_tried = True
            if self._dev_left_out:
                self._warn(
                    f"{self._dev_left_out} of {len(self.dev)} dev pairs have a side of more than {LONGEST_TOKENS} "
                    "tokens and are excluded from dev loss and perplexity; split their lines"
                )
            begin_segment(state, self.workers, self.negotiated, self.settings.threads, captured)
            self.workers.set_timeout(UPDATE_TIMEOUT)  # all have finished slow start-up work
            gc.collect()
        with garbage_frozen():
            self._train(last)

    def _train(self, last: int) -> None:
        """Computes the updates up to `last`."""
        state = self.state
        self.shown_s = resumed_s = time.monotonic()
        logged, logged_tokens, logged_s = state.update, state.target_tokens, state.train_s
        for update in self.updates.between(state.update, last):
            resumed_s += self.profiler.begin(state.update + 1)
            self._update(update)
            resumed_s += self.profiler.end(state.update)
            schedule, shows = self._schedule(last), self._shows_progress()
            if state.update % COLLECT_UPDATES == 0 or schedule.validation or schedule.kept:
                gc.collect()
            if not (any(schedule) or shows):
                continue
            line = self._metrics()
            if any(schedule):
                check_finite(self.unread, self.settings.optimizer)
                self.unread.clear()
            state.spend(time.monotonic() - resumed_s)
            line["tokens_s"] = (state.target_tokens - logged_tokens) / (state.train_s - logged_s)
            line["train_s"] = state.train_s
            if shows:
                self._show(line)
            if schedule.metrics:
                self._log(line)
                update_s = (state.train_s - logged_s) / (state.update - logged)
                logged, logged_tokens, logged_s = state.update, state.target_tokens, state.train_s
            if schedule.validation:
                self._validate()
            preempted = schedule.metrics and self._newly_preempted(update_s)
            if any(schedule) or first_broken(self.unread) is None:
                self._save(schedule, preempted)
            resumed_s = time.monotonic()

    def _schedule(self, last: int) -> Schedule:
        """Decides what follows the update just queued, if `train` stops at update `last`."""
        settings, number = self.settings, self.state.update
        end = number == settings.updates
        return Schedule(
            end=end,
            metrics=number == last or number % settings.log_updates == 0,
            validation=end or number % settings.validation_updates == 0,
            kept=number in self.kept_updates,
        )

    def _shows_progress(self) -> bool:
        """Whether to report progress now; only at rank 0, by its clock."""
        is_due = self.state.update == self.settings.updates or time.monotonic() - self.shown_s >= PROGRESS_S
        return is_due and self.workers.rank == 0

    def _newly_preempted(self, update_s: float) -> bool:
        """Whether a machine is about to be preempted, True only once; all ranks must call it at the same updates.

        Checks at most every PREEMPTION_S, given that an update takes rank 0 `update_s`.
        """
        if self.preempted or self.state.update < self.next_preemption_check:
            return False
        self.next_preemption_check = self.state.update + self.workers.broadcast_object(int(PREEMPTION_S / update_s))
        self.preempted = self.is_preempted()
        return self.preempted

    def _update(self, update: Update) -> None:
        """Queues one update on the device without synchronising."""
        number = self.state.update + 1
        for part in self.exact_sum.in_order(update.mine) if self.exact_sum else update.mine:
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
            self.step.update_shadow()
        self._count(update, results)

    def _count(self, update: Update, results: Tensor) -> None:
        """Adds an update to the state; its results stay on the device."""
        state = self.state
        epoch = state.update // self.updates.in_epoch
        state.update += 1
        state.source_tokens += update.source_tokens
        state.target_tokens += update.target_tokens
        state.computed_tokens += update.computed_tokens
        state.counted_flop += update.flop
        self.unread.append(Applied(state.update, epoch, update.source_tokens, update.target_tokens, results))

    def _metrics(self) -> dict[str, Any]:
        """Synchronises with the device; returns the newest update's metrics."""
        line = self.unread[-1].read_back()
        return line | {"learning_rate": self.step.learning_rate(line["update"]), "workers": self.workers.size}

    def _validate(self) -> None:
        """Computes loss and perplexity of the dev split, divided among the workers."""
        smoothing = self.settings.optimizer.label_smoothing
        check_replicas(self.workers, self.step.adam.weights_P, self.state.update)
        with self.step.uncompiled():
            sums = split_sums(self.step.model, self.dev, smoothing, self.workers.rank, self.workers.size)
        self.workers.all_reduce(sums)
        loss, nll, n_tokens = sums.tolist()
        nll = nll / n_tokens
        line = {
            "update": self.state.update,
            "dev_loss": loss / n_tokens,
            "dev_nll": nll,
            "dev_perplexity": perplexity_of(nll),
            "train_s": self.state.train_s,
        }
        self._log(line)
        if self.workers.rank == 0:
            self.writer.keep_beside(METRICS)

    def _warn(self, warning: str) -> None:
        """Logs a warning at rank 0; `pipeline.warning_events` turns it into an event."""
        if self.workers.rank == 0:
            log.warning("%s", warning)

    def _show(self, line: dict[str, Any]) -> None:
        """Emits a progress event, unless the loss is not finite, since `check_finite` will end the run."""
        if not math.isfinite(line["loss"]):
            return
        metrics = {"tokens_s": line["tokens_s"], "loss": line["loss"]}
        self.emit({"done": self.state.update, "total": self.settings.updates, "unit": "updates", **metrics})
        self.shown_s = time.monotonic()

    def _log(self, line: dict[str, Any]) -> None:
        """Appends a line to metrics.jsonl and emits it as an event."""
        if self.workers.rank == 0:
            self.writer.scratch.check(every_s=CHECK_S)
            with (self.folder / METRICS).open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(line) + "\n")
            metrics = {name: value for name, value in line.items() if name != "update"}
            self.emit({"metrics": metrics, "step": line["update"]})

    def _save(self, schedule: Schedule, preempted: bool) -> None:
        """Passes a checkpoint to the writer if one is due; waits for the last one, and for one before a preemption.

        Only rank 0 writes, and no result depends on when a recovery checkpoint is due.
        """
        must_wait = schedule.end or preempted
        recovery = must_wait or self.writer.recovery_is_due
        if self.workers.rank or not (schedule.kept or recovery):
            return
        began_s = time.monotonic()
        self.writer.begin(self.step, self.state, kept=schedule.kept, recovery=recovery, end=schedule.end)
        if must_wait:
            self.writer.wait()
        self.checkpoint_s += time.monotonic() - began_s

    def summary(self, loop_s: float) -> TrainingRecord:
        """Returns the content of run.json; `loop_s` is the time since the loop began."""
        settings, state = self.settings, self.state
        return TrainingRecord(
            settings=settings,
            updates=state.update,
            epochs=state.update / self.updates.in_epoch,
            train_s=state.train_s,
            checkpoint_s=self.checkpoint_s,
            loop_s=loop_s,
            source_tokens=state.source_tokens,
            target_tokens=state.target_tokens,
            padding_fraction=1 - (state.source_tokens + state.target_tokens) / state.computed_tokens,
            segments=tuple(state.segments),
            counted_flop=state.counted_flop,
            parameters=sum(parameter.numel() for parameter in self.step.master.parameters()),
            checkpoints=settings.kept_updates,
            dev_left_out=self._dev_left_out,
        )
