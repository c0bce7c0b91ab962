"""The training loop of one worker of a group (paper §5): torch and torch.distributed alone.

A worker computes whole micro-batches, dealt out in turn: micro-batch i is of rank i % size. Gradients are summed over
the workers and divided once by the update's number of target tokens. What is random inside a micro-batch is seeded by
(seed, update, micro-batch), so the number of workers changes nothing but the order of the sum.

    run(Group(), dataset, TrainingSettings(updates=100), folder)          # one worker, this process
"""

import hashlib
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from model.flops import training_flop
from model.schedule import learning_rate
from model.training_step import TrainingStep, compute_dtype
from model.transformer import Transformer
from pipeline.artifacts import EncodedDataset, ignore
from pipeline.batching import EpochPlan, plan_epoch
from pipeline.checkpoints import TrainingState, list_folders, load_newest, restore, save
from pipeline.encoding import EncodedSplit
from pipeline.errors import UserError
from pipeline.metrics_file import MetricsFile
from pipeline.perplexity import check_vocabulary, exp, split_sums
from pipeline.settings import TrainingSettings

PREFETCH_UPDATES = 2
PROGRESS_S = 1.0
MATMUL_S = 0.3


@dataclass(frozen=True)
class Group:
    """One worker's place among the workers; with more than one, torch.distributed's default group joins them."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all workers, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def from_first(self, value: Any) -> Any:
        """Rank 0's value, at every rank."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, device=torch.device(self.device))
        return box[0]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """A UserError in the body of any worker is raised in all, so that none waits for one that gave up."""
        message: str | None = None
        try:
            yield
        except UserError as error:
            message = str(error)
        messages: list[str | None] = [message]
        if self.size > 1:
            messages = [None] * self.size
            dist.all_gather_object(messages, message)
        for found in messages:
            if found is not None:
                raise UserError(found)


class MicroBatch(NamedTuple):
    """What one forward and backward pass needs."""

    number: int
    """Its place in the update."""
    source_BS: Tensor
    target_BT: Tensor


class Update(NamedTuple):
    """This worker's share of an update, and what the whole of it holds."""

    mine: list[MicroBatch]
    source_tokens: int
    target_tokens: int
    padded_tokens: int
    flop: float
    """Counted operations of all its micro-batches."""


def run(
    group: Group,
    dataset: EncodedDataset,
    settings: TrainingSettings,
    folder: Path,
    emit: Callable[[dict[str, Any]], None] = ignore,
    report: Callable[[dict[str, Any]], None] = ignore,
) -> dict[str, Any]:
    """Trains until `settings.updates`, from the newest good checkpoint under `folder/checkpoints`; gives run.json.

    Every rank calls it with the same arguments. Rank 0 writes `checkpoints/` and `metrics.jsonl` and emits events;
    `report` is called by every rank with each line of validation. Raises UserError, at every rank, where the settings
    do not fit the dataset, an update does not fit the memory, or a loss or gradient is not finite.
    """
    return _Training(group, dataset, settings, folder, emit, report).run()


class _Training:
    def __init__(
        self,
        group: Group,
        dataset: EncodedDataset,
        settings: TrainingSettings,
        folder: Path,
        emit: Callable[[dict[str, Any]], None],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.group, self.settings, self.folder = group, settings, folder
        self.emit = emit if group.rank == 0 else ignore
        self.report = report
        if group.device == "cpu":
            torch.set_num_threads(settings.threads)
        with group.agreed():
            check_vocabulary(dataset, settings.model.vocabulary_size)
            self.train, self.dev = EncodedSplit.open(dataset, "train"), EncodedSplit.open(dataset, "dev")
            self._check_lengths()
            self.plan = self._plan(0)
            self.step = self._fresh_step()
            found = None
            if group.rank == 0:
                found = load_newest(folder / "checkpoints", self._identity())
        self.state = TrainingState(identity=self._identity())
        found = group.from_first(found)
        if found:
            checkpoint, self.state = found
            restore(checkpoint, self.step)
        self.metrics = MetricsFile(folder / "metrics.jsonl") if group.rank == 0 else None
        if self.metrics:
            self.metrics.cut(self.state.update)
        # One buffer for the reduction: the gradients, then [loss, NLL, whether rank 0 wants a checkpoint].
        gradients = self.step.gradients()
        sizes = [gradient.numel() for gradient in gradients]
        self.flat = torch.zeros(sum(sizes) + 3 if group.size > 1 else 3, device=group.device)
        self.tail = self.flat[-3:]
        self.views = self.flat[:-3].split(sizes) if group.size > 1 else ()

    def run(self) -> dict[str, Any]:
        settings, state = self.settings, self.state
        if state.update < settings.updates:
            self._try_largest()
            state.matmul_flop_s = state.matmul_flop_s or matmul_flop_s(self.group.device)
        last_checkpoint_s = last_progress_s = time.monotonic()
        window = _Window(state)
        with ThreadPoolExecutor(max_workers=1) as prefetcher:
            for update in self._prefetched(prefetcher):
                started_s = time.monotonic()
                minutes_due = (started_s - last_checkpoint_s) / 60 >= settings.checkpoint_minutes > 0
                line, minutes_due = self._update(update, minutes_due)
                state.train_s += time.monotonic() - started_s
                last = state.update == settings.updates
                if time.monotonic() - last_progress_s >= PROGRESS_S or last:
                    last_progress_s = time.monotonic()
                    shown = {"tokens_s": window.tokens_s(state), "loss": line["loss"]}
                    self.emit({"done": state.update, "total": settings.updates, "unit": "updates", **shown})
                if state.update % settings.log_updates == 0 or last:
                    self._log({**line, "tokens_s": window.tokens_s(state), "train_s": state.train_s})
                    window = _Window(state)
                if state.update % settings.validation_updates == 0 or last:
                    self._validate()
                every = settings.checkpoint_updates
                if minutes_due or (every and state.update % every == 0) or last:
                    self._save()
                    last_checkpoint_s = time.monotonic()
        return self._described()

    def _update(self, update: Update, minutes_due: bool) -> tuple[dict[str, Any], bool]:
        """One update -> its line of metrics, and whether rank 0 wants a checkpoint for the time that has passed."""
        settings, state, step = self.settings, self.state, self.step
        number, epoch = state.update + 1, state.epoch
        self.tail.zero_()
        for micro_batch in update.mine:
            sums = step.accumulate(
                micro_batch.source_BS.to(self.group.device, non_blocking=True),
                micro_batch.target_BT.to(self.group.device, non_blocking=True),
                dropout_seed(settings.seed, number, micro_batch.number),
            )
            self.tail[0] += sums.loss
            self.tail[1] += sums.nll
        gradients = step.gradients()
        self.tail[2] = float(minutes_due and self.group.rank == 0)
        if self.views:
            torch._foreach_copy_(list(self.views), [gradient.flatten() for gradient in gradients])
            self.group.sum(self.flat)
            torch._foreach_copy_([gradient.view(-1) for gradient in gradients], list(self.views))
        norm = torch.nn.utils.get_total_norm(gradients)
        loss, nll, due, summed_norm = torch.cat((self.tail, norm[None])).tolist()
        loss, nll = loss / update.target_tokens, nll / update.target_tokens
        if not np.isfinite([loss, summed_norm]).all():
            raise UserError(
                f"update {number} (epoch {epoch}): the loss is {loss:.4g} and the norm of the gradient "
                f"{summed_norm:.4g}; nothing was written of it. Lower optimizer.learning_rate_scale (now "
                f"{settings.optimizer.learning_rate_scale:g}), raise optimizer.warmup_steps (now "
                f"{settings.optimizer.warmup_steps}) or set precision = float32"
            )
        gradient_norm = step.apply(number, update.target_tokens)
        state.update, state.position = number, state.position + 1
        if state.position == len(self.plan):
            state.epoch, state.position = epoch + 1, 0
        state.source_tokens += update.source_tokens
        state.target_tokens += update.target_tokens
        state.padded_tokens += update.padded_tokens
        state.counted_flop += update.flop
        optimizer = settings.optimizer
        line = {
            "update": number,
            "epoch": epoch,
            "loss": loss,
            "nll": nll,
            "perplexity": exp(nll),
            "learning_rate": learning_rate(
                number, settings.model.d_model, optimizer.warmup_steps, optimizer.learning_rate_scale
            ),
            "gradient_norm": float(gradient_norm),
            "source_tokens": update.source_tokens,
            "target_tokens": update.target_tokens,
        }
        return line, due > 0

    def _prefetched(self, prefetcher: ThreadPoolExecutor) -> Iterator[Update]:
        """The updates from `state` on; the next ones are built while one is computed."""
        state = self.state
        waiting: deque[Future[Update]] = deque()
        epoch, position = state.epoch, state.position
        for _ in range(state.update, self.settings.updates):
            waiting.append(prefetcher.submit(self._build, epoch, position))
            position += 1
            if position == len(self.plan):  # every epoch has as many updates as the first
                epoch, position = epoch + 1, 0
            if len(waiting) > PREFETCH_UPDATES:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _build(self, epoch: int, position: int) -> Update:
        if epoch != self.plan_epoch:
            self.plan = self._plan(epoch)
        micro_batches = self.plan[position]
        mine = []
        padded_tokens, flop = 0, 0
        for number, rows in enumerate(micro_batches):
            source_length = int(self.train.source_lengths[rows].max())
            target_lengths = self.train.target_lengths[rows]
            shape = len(rows), source_length, int(target_lengths.max())
            padded_tokens += shape[0] * (shape[1] + shape[2])
            flop += training_flop(self.settings.model, *shape, int(target_lengths.sum()))
            if number % self.group.size == self.group.rank:
                source_BS, target_BT = self.train.batch(rows)
                if self.group.device != "cpu":
                    source_BS, target_BT = source_BS.pin_memory(), target_BT.pin_memory()
                mine.append(MicroBatch(number, source_BS, target_BT))
        tokens = int(self.plan.source_tokens[position]), int(self.plan.target_tokens[position])
        return Update(mine, *tokens, padded_tokens, flop)

    def _plan(self, epoch: int) -> EpochPlan:
        settings = self.settings
        self.plan_epoch = epoch
        return plan_epoch(
            self.train.source_lengths,
            self.train.target_lengths,
            seed=settings.seed,
            epoch=epoch,
            budget_tokens=settings.budget_tokens,
            micro_batches=settings.micro_batches,
        )
