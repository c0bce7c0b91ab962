"""The training loop of one worker (paper §5): torch and torch.distributed alone, no Ray.

A worker computes whole micro-batches, dealt out in turn. Gradients are summed over the workers and divided once by the
update's number of target tokens. What is random inside a micro-batch is seeded by (seed, update, micro-batch), so the
number of workers changes nothing but the order of the sum.

    run(WorkerGroup(), dataset, TrainingSettings(updates=100), folder)          # one worker, this process
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.schedule import learning_rate
from model.training_step import TrainingStep
from model.transformer import Transformer
from pipeline.errors import UserError
from pipeline.hardware import compiles, device_name, dtype_of, matmul_flop_s
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import ignore
from pipeline.store.artifacts import EncodedDataset
from pipeline.store.figures import TrainingFigures
from pipeline.text.encoding import EncodedSplit
from pipeline.training.checkpoints import CheckpointWriter, TrainingState, list_folders, load_newest, restore
from pipeline.training.prefetching import MicroBatch, Update, Updates
from pipeline.training.reduction import Reduction
from pipeline.training.validation import check_vocabulary, exp, split_sums
from pipeline.training.worker_group import WorkerGroup

PROGRESS_S = 1.0
Listener = Callable[[dict[str, Any]], None]


def run(
    group: WorkerGroup,
    dataset: EncodedDataset,
    settings: TrainingSettings,
    folder: Path,
    emit: Listener = ignore,
    is_leaving: Callable[[], bool] = lambda: False,
) -> TrainingFigures:
    """Trains to `settings.updates`, from the newest good checkpoint of `folder/checkpoints`; gives what run.json holds.

    Every rank calls it with the same arguments. Rank 0 writes `checkpoints/` and `metrics.jsonl` and emits events.
    `is_leaving`, asked at every logged update, the same at all ranks, says that a machine is about to be taken away: a
    checkpoint is written at once, and training goes on while it may. Raises UserError, at every rank, where the
    settings do not fit the dataset, an update does not fit the memory, the disk is full, or a loss or gradient is not
    finite.
    """
    began_s = time.monotonic()
    training = Training(group, dataset, settings, folder, emit if group.rank == 0 else ignore, is_leaving)
    with training.writer:
        training.resume()
        training.train()
    return training.described(loop_s=time.monotonic() - began_s)


def dropout_seed(seed: int, update: int, micro_batch: int) -> int:
    """Seeds what is random in a micro-batch; the same on every machine and Python."""
    digest = hashlib.blake2b(f"{seed} {update} {micro_batch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


class _Unread(NamedTuple):
    """An update whose figures the host has not asked the device for."""

    number: int
    epoch: int
    source_tokens: int
    target_tokens: int
    figures: Tensor
    """Loss, NLL, whether a checkpoint is due by time, norm of the gradient."""


class Training:
    """One worker's training: `resume`, then `train` to the end or, in parts, to any update before it."""

    def __init__(
        self,
        group: WorkerGroup,
        dataset: EncodedDataset,
        settings: TrainingSettings,
        folder: Path,
        emit: Listener = ignore,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self.group, self.settings, self.folder = group, settings, folder
        self.emit, self.is_leaving, self.preemption_handled = emit, is_leaving, False
        self.writer = CheckpointWriter(folder / "checkpoints", settings.keep_checkpoints)
        if group.device == "cpu":
            torch.set_num_threads(settings.threads)
        self.dtype = dtype_of(settings.precision, group.device)
        with group.agreed():
            check_vocabulary(dataset, settings.model.vocabulary_size)
            self.split, self.dev = EncodedSplit.open(dataset, "train"), EncodedSplit.open(dataset, "dev")
            self._check_splits()
            self.updates = Updates(self.split, settings, group)
        torch.manual_seed(settings.seed)
        master = Transformer(settings.model).to(group.device)
        self.step = TrainingStep(master, settings.optimizer, self.dtype, compiles(group.device))
        self.reduction = Reduction(group, self.step, n_figures=3, exact=settings.exact_reduction)
        self.unread: list[_Unread] = []
        self.checkpoint_s = 0.0
        self.largest_tried = False

    def _check_splits(self) -> None:
        if not len(self.dev):
            raise UserError(f"{self.dev.dataset.folder} has an empty dev split; training is measured on it")
        model = self.settings.model
        splits = [split for split in (self.split, self.dev) if len(split)]
        longest = max(int(side.max()) for split in splits for side in (split.source_lengths, split.target_lengths))
        if model.positions == "learned" and longest > model.max_positions:
            raise UserError(
                f"a sentence of {longest} tokens, but learned positions end at max_positions = {model.max_positions}; "
                "raise max_positions or lower the encoding's max_tokens"
            )

    def _identity(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.split.source_lengths.tobytes() + self.split.target_lengths.tobytes())
        return {**self.settings.identity(), "dataset": digest.hexdigest()}

    def resume(self) -> None:
        """Takes up the newest good checkpoint, of rank 0's choice; cuts the metrics that came after it."""
        found, identity = None, self._identity()
        with self.group.agreed():
            if self.group.rank == 0:
                found = load_newest(self.folder / "checkpoints", identity)
        found = self.group.from_first(found)
        self.state = TrainingState(identity=identity)
        if found:
            checkpoint, self.state = found
            restore(checkpoint, self.step)
        if self.group.rank == 0:
            cut_metrics(self.folder / "metrics.jsonl", self.state.update)

    def train(self, until: int | None = None) -> None:
        """The updates that are left, or those up to `until`, with their metrics, validation and checkpoints.

        The host waits for the device only where it writes: at logged updates, once a second for the progress shown,
        and for validation and checkpoints.
        """
        settings, state = self.settings, self.state
        last = min(until or settings.updates, settings.updates)
        if state.update >= last:
            return
        if not self.largest_tried:
            self._try_largest()
            state.matmul_flop_s = state.matmul_flop_s or matmul_flop_s(self.group.device)
        saved_s = shown_s = resumed_s = time.monotonic()
        logged_tokens, logged_s = state.target_tokens, state.train_s
        for update in self.updates.between(state.update, last):
            number = state.update + 1
            done, logged = number == settings.updates, number % settings.log_updates == 0 or number == last
            minutes_due = logged and 0 < settings.checkpoint_minutes <= (time.monotonic() - saved_s) / 60
            self._update(update, minutes_due)
            every = settings.checkpoint_updates
            validated = number % settings.validation_updates == 0 or done
            saved = done or (every > 0 and number % every == 0)
            shown = time.monotonic() - shown_s >= PROGRESS_S
            if logged or validated or saved or shown:
                line, minutes_due = self._read_back()
            now_s = time.monotonic()
            state.train_s += now_s - resumed_s
            if logged or shown:
                line["tokens_s"] = (state.target_tokens - logged_tokens) / (state.train_s - logged_s)
                line["train_s"] = state.train_s
            if shown or done:
                shown_s = now_s
                figures = {"tokens_s": line["tokens_s"], "loss": line["loss"]}
                self.emit({"done": number, "total": settings.updates, "unit": "updates", **figures})
            if logged:
                self._log(line)
                logged_tokens, logged_s = state.target_tokens, state.train_s
            if validated:
                self._validate()
            leaving = logged and not self.preemption_handled and self.is_leaving()
            if saved or leaving or (logged and minutes_due):
                self._save(settled=done or leaving)
                saved_s = time.monotonic()
            self.preemption_handled = self.preemption_handled or leaving
            resumed_s = time.monotonic()

    def _update(self, update: Update, minutes_due: bool) -> None:
        """Queues one update on the device: nothing in it waits for a result."""
        state, number = self.state, self.state.update + 1

        def accumulate(batch: MicroBatch) -> Tensor:
            source_BS, target_BT = self._to_device(batch.source_BS), self._to_device(batch.target_BT)
            sums = self.step.accumulate(source_BS, target_BT, dropout_seed(self.settings.seed, number, batch.number))
            return torch.stack((sums.loss, sums.nll, torch.zeros_like(sums.loss)))

        initial_figures = torch.zeros(3, device=self.group.device)
        if minutes_due:
            initial_figures[2] = 1
        sums = self.reduction.sum(update.micro_batches, update.mine, accumulate, initial_figures)
        norm = self.step.apply(number, update.target_tokens)
        figures = torch.cat((sums, norm[None]))
        self.unread.append(_Unread(number, state.epoch, update.source_tokens, update.target_tokens, figures))
        state.update = number
        state.epoch, state.position = divmod(number, self.updates.in_epoch)
        state.source_tokens += update.source_tokens
        state.target_tokens += update.target_tokens
        state.padded_tokens += update.padded_tokens
        state.counted_flop += update.flop

    def _read_back(self) -> tuple[dict[str, Any], bool]:
        """Waits for the device; gives the newest update's line of metrics, and whether a checkpoint is due by time.

        Raises UserError for the first update whose loss or gradient is not finite.
        """
        settings, optimizer = self.settings, self.settings.optimizer
        figures = torch.stack([unread.figures for unread in self.unread]).tolist()
        for unread, (loss, _, _, norm) in zip(self.unread, figures, strict=True):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise UserError(
                    f"update {unread.number} (epoch {unread.epoch}): the loss is {loss / unread.target_tokens:.4g} and "
                    f"the norm of the gradient {norm:.4g}, and no weight was changed by it; lower "
                    f"optimizer.learning_rate_scale (now {optimizer.learning_rate_scale:g}), raise "
                    f"optimizer.warmup_steps (now {optimizer.warmup_steps}) or set precision = float32"
                )
        newest, (loss, nll, minutes_due, norm) = self.unread[-1], figures[-1]
        self.unread.clear()
        rate = learning_rate(
            newest.number, settings.model.d_model, optimizer.warmup_steps, optimizer.learning_rate_scale
        )
        line = {
            "update": newest.number,
            "epoch": newest.epoch,
            "loss": loss / newest.target_tokens,
            "nll": nll / newest.target_tokens,
            "perplexity": exp(nll / newest.target_tokens),
            "learning_rate": rate,
            "gradient_norm": norm,
            "workers": self.group.size,
            "source_tokens": newest.source_tokens,
            "target_tokens": newest.target_tokens,
        }
        return line, minutes_due > 0

    def _try_largest(self) -> None:
        """Forward and backward of the micro-batches that need most memory, so that none fails hours later."""
        with self.group.agreed():
            for rows in self.updates.largest:
                source_BS, target_BT = map(self._to_device, self.split.batch(rows))
                try:
                    self.step.accumulate(source_BS, target_BT, seed=0)
                except (torch.OutOfMemoryError, RuntimeError) as error:
                    if "memory" not in str(error):
                        raise
                    raise UserError(
                        f"the largest micro-batch, {len(rows)} pairs of {source_BS.shape[1]} and {target_BT.shape[1]} "
                        f"tokens, does not fit the memory of {self.group.device}; raise micro_batches, or lower "
                        "budget_tokens or the encoding's max_tokens"
                    ) from error
            self.step.discard()
        self.largest_tried = True

    def _to_device(self, tokens: Tensor) -> Tensor:
        return tokens.to(self.group.device, non_blocking=True)

    def _validate(self) -> None:
        """Loss and perplexity of the dev split, spread over the workers."""
        smoothing = self.settings.optimizer.label_smoothing
        sums = self.group.sum(split_sums(self.step.model, self.dev, smoothing, self.group.rank, self.group.size))
        loss, nll, n_tokens = sums.tolist()
        nll = nll / n_tokens
        line = {
            "update": self.state.update,
            "dev_loss": loss / n_tokens,
            "dev_nll": nll,
            "dev_perplexity": exp(nll),
            "train_s": self.state.train_s,
        }
        self._log(line)

    def _log(self, line: dict[str, Any]) -> None:
        """A line of metrics.jsonl, and its event."""
        if self.group.rank == 0:
            with (self.folder / "metrics.jsonl").open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(line) + "\n")
            figures = {name: value for name, value in line.items() if name != "update"}
            self.emit({"metrics": figures, "step": line["update"]})

    def _save(self, settled: bool) -> None:
        """Hands a checkpoint to the writer; `settled`: and waits until it lies on the disk."""
        began_s = time.monotonic()
        with self.group.agreed():
            if self.group.rank == 0:
                self.writer.begin(self.step, self.state)
                if settled:
                    self.writer.wait()
        self.checkpoint_s += time.monotonic() - began_s

    def described(self, loop_s: float) -> TrainingFigures:
        """Returns what run.json holds."""
        settings, state = self.settings, self.state
        return TrainingFigures(
            settings=settings,
            updates=state.update,
            epochs=state.update / self.updates.in_epoch,
            train_s=state.train_s,
            checkpoint_s=self.checkpoint_s,
            source_tokens=state.source_tokens,
            target_tokens=state.target_tokens,
            padding_fraction=1 - (state.source_tokens + state.target_tokens) / state.padded_tokens,
            workers=self.group.size,
            threads=settings.threads,
            devices=self.group.size,
            device_name=device_name(self.group.device),
            dtype=str(self.dtype).removeprefix("torch."),
            matmul_flop_s=state.matmul_flop_s,
            counted_flop=state.counted_flop,
            parameters=sum(parameter.numel() for parameter in self.step.master.parameters()),
            checkpoints=tuple(int(folder.name) for folder in list_folders(self.folder / "checkpoints")),
            loop_s=loop_s,
        )


def cut_metrics(path: Path, update: int) -> None:
    """Keeps the lines of metrics.jsonl up to `update`, so that none stands twice; a half-written one goes too."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            if json.loads(line)["update"] <= update:
                kept.append(line + "\n")
        except ValueError:
            continue
    aside = path.with_suffix(".making")
    aside.write_text("".join(kept), encoding="utf-8", newline="\n")
    os.replace(aside, path)
