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
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.schedule import learning_rate
from model.training_step import TrainingStep, compute_dtype
from model.transformer import Transformer
from pipeline.artifacts import EncodedDataset, ignore
from pipeline.checkpoints import TrainingState, list_folders, load_newest, restore, save
from pipeline.encoding import EncodedSplit
from pipeline.errors import UserError
from pipeline.perplexity import check_vocabulary, exp, split_sums
from pipeline.prefetching import Update, Updates
from pipeline.settings import TrainingSettings
from pipeline.worker_group import WorkerGroup

PROGRESS_S = 1.0
MATMUL_S = 0.3
Listener = Callable[[dict[str, Any]], None]


def run(
    group: WorkerGroup,
    dataset: EncodedDataset,
    settings: TrainingSettings,
    folder: Path,
    emit: Listener = ignore,
) -> dict[str, Any]:
    """Trains to `settings.updates`, from the newest good checkpoint of `folder/checkpoints`; gives what run.json holds.

    Every rank calls it with the same arguments. Rank 0 writes `checkpoints/` and `metrics.jsonl` and emits events.
    Raises UserError, at every rank, where the settings do not fit the dataset, an update does not fit the memory, the
    disk is full, or a loss or gradient is not finite.
    """
    training = _Training(group, dataset, settings, folder, emit if group.rank == 0 else ignore)
    training.resume()
    training.train()
    return training.described()


def dropout_seed(seed: int, update: int, micro_batch: int) -> int:
    """Seeds what is random in a micro-batch; the same on every machine and Python."""
    digest = hashlib.blake2b(f"{seed} {update} {micro_batch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def matmul_flop_s(device: str) -> float:
    """Rate of a float32 product on one device, measured for 0.3 s after one to warm up."""
    size = 8192 if device.startswith("cuda") else 1024
    x = torch.randn(size, size, device=device, generator=torch.Generator(device).manual_seed(0))

    def product() -> None:
        x @ x
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    product()
    products, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < MATMUL_S:
        product()
        products += 1
    return 2 * size**3 * products / (time.perf_counter() - started_s)


def device_name(device: str) -> str:
    """The GPU's name, or the processor's."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n")
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


class _Training:
    def __init__(
        self,
        group: WorkerGroup,
        dataset: EncodedDataset,
        settings: TrainingSettings,
        folder: Path,
        emit: Listener,
    ) -> None:
        self.group, self.settings, self.folder, self.emit = group, settings, folder, emit
        if group.device == "cpu":
            torch.set_num_threads(settings.threads)
        self.dtype = compute_dtype(group.device) if settings.precision == "auto" else getattr(torch, settings.precision)
        with group.agreed():
            check_vocabulary(dataset, settings.model.vocabulary_size)
            self.split, self.dev = EncodedSplit.open(dataset, "train"), EncodedSplit.open(dataset, "dev")
            self._check_splits()
            self.updates = Updates(self.split, settings, group)
        torch.manual_seed(settings.seed)
        master = Transformer(settings.model).to(group.device)
        self.step = TrainingStep(master, settings.optimizer, self.dtype)
        # One buffer to reduce: the gradients, then the loss, the NLL and whether rank 0 wants a checkpoint.
        sizes = [gradient.numel() for gradient in self.step.gradients()] if group.size > 1 else []
        self.flat = torch.zeros(sum(sizes) + 3, device=group.device)
        self.flat_gradients, self.flat_sums = self.flat[:-3].split(sizes), self.flat[-3:]

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

    def train(self) -> None:
        """The updates that are left, with their metrics, validation and checkpoints."""
        settings, state = self.settings, self.state
        if state.update == settings.updates:
            return
        self._try_largest()
        state.matmul_flop_s = state.matmul_flop_s or matmul_flop_s(self.group.device)
        saved_s = shown_s = resumed_s = time.monotonic()
        logged_tokens, logged_s = state.target_tokens, state.train_s
        for update in self.updates.between(state.update, settings.updates):
            minutes_due = 0 < settings.checkpoint_minutes <= (time.monotonic() - saved_s) / 60
            line, minutes_due = self._update(update, minutes_due)
            now_s = time.monotonic()
            state.train_s += now_s - resumed_s
            last = state.update == settings.updates
            line["tokens_s"] = (state.target_tokens - logged_tokens) / (state.train_s - logged_s)
            line["train_s"] = state.train_s
            if now_s - shown_s >= PROGRESS_S or last:
                shown_s = now_s
                shown = {"tokens_s": line["tokens_s"], "loss": line["loss"]}
                self.emit({"done": state.update, "total": settings.updates, "unit": "updates", **shown})
            if state.update % settings.log_updates == 0 or last:
                self._log(line)
                logged_tokens, logged_s = state.target_tokens, state.train_s
            if state.update % settings.validation_updates == 0 or last:
                self._validate()
            every = settings.checkpoint_updates
            if minutes_due or (every and state.update % every == 0) or last:
                self._save()
                saved_s = time.monotonic()
            resumed_s = time.monotonic()

    def _update(self, update: Update, minutes_due: bool) -> tuple[dict[str, Any], bool]:
        """One update -> its line of metrics, and whether rank 0 wants a checkpoint for the minutes that have passed."""
        settings, state, optimizer = self.settings, self.state, self.settings.optimizer
        number, epoch = state.update + 1, state.epoch
        self.flat_sums.zero_()
        self.flat_sums[2] = float(minutes_due and self.group.rank == 0)
        for micro_batch in update.mine:
            source_BS, target_BT = self._to_device(micro_batch.source_BS), self._to_device(micro_batch.target_BT)
            sums = self.step.accumulate(source_BS, target_BT, dropout_seed(settings.seed, number, micro_batch.number))
            self.flat_sums[:2] += torch.stack((sums.loss, sums.nll))
        gradients = [gradient.view(-1) for gradient in self.step.gradients()]
        if self.flat_gradients:
            torch._foreach_copy_(self.flat_gradients, gradients)
            self.group.sum(self.flat)
            torch._foreach_copy_(gradients, self.flat_gradients)
        norm = torch.nn.utils.get_total_norm(gradients) / update.target_tokens
        loss, nll, due, gradient_norm = torch.cat((self.flat_sums, norm[None])).tolist()
        loss, nll = loss / update.target_tokens, nll / update.target_tokens
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            raise UserError(
                f"update {number} (epoch {epoch}): the loss is {loss:.4g} and the norm of the gradient "
                f"{gradient_norm:.4g}, and no weight was changed by it; lower optimizer.learning_rate_scale (now "
                f"{optimizer.learning_rate_scale:g}), raise optimizer.warmup_steps (now {optimizer.warmup_steps}) "
                "or set precision = float32"
            )
        self.step.apply(number, update.target_tokens)
        state.update = number
        state.epoch, state.position = divmod(number, self.updates.in_epoch)
        state.source_tokens += update.source_tokens
        state.target_tokens += update.target_tokens
        state.padded_tokens += update.padded_tokens
        state.counted_flop += update.flop
        rate = learning_rate(number, settings.model.d_model, optimizer.warmup_steps, optimizer.learning_rate_scale)
        line = {
            "update": number,
            "epoch": epoch,
            "loss": loss,
            "nll": nll,
            "perplexity": exp(nll),
            "learning_rate": rate,
            "gradient_norm": gradient_norm,
            "source_tokens": update.source_tokens,
            "target_tokens": update.target_tokens,
        }
        return line, due > 0

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
            torch._foreach_zero_(self.step.gradients())

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

    def _save(self) -> None:
        with self.group.agreed():
            if self.group.rank == 0:
                save(self.folder / "checkpoints", self.step, self.state, self.settings.keep_checkpoints)

    def described(self) -> dict[str, Any]:
        """What run.json holds."""
        settings, state = self.settings, self.state
        return {
            "settings": settings.model_dump(mode="json"),
            "updates": state.update,
            "epochs": state.update / self.updates.in_epoch,
            "train_s": state.train_s,
            "source_tokens": state.source_tokens,
            "target_tokens": state.target_tokens,
            "padding_fraction": 1 - (state.source_tokens + state.target_tokens) / state.padded_tokens,
            "workers": self.group.size,
            "threads": settings.threads,
            "devices": self.group.size,
            "device_name": device_name(self.group.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "matmul_flop_s": state.matmul_flop_s,
            "counted_flop": state.counted_flop,
            "parameters": sum(parameter.numel() for parameter in self.step.master.parameters()),
            "checkpoints": [int(folder.name) for folder in list_folders(self.folder / "checkpoints")],
        }


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
