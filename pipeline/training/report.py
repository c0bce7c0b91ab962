"""What a run says of its updates: lines of metrics.jsonl, events, and its end if a result is not finite.

Updates are queued on the device. Their results stay there until a report is due, since reading them synchronises.
"""

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.loss import perplexity_of
from pipeline.artifacts import METRICS
from pipeline.context import CHECK_S, Listener
from pipeline.errors import UserError
from pipeline.memory import peak_memory_bytes
from pipeline.settings import TrainingSettings
from pipeline.store.build import Build
from pipeline.training.checkpoints import TrainingState
from pipeline.training.updates import Updates
from pipeline.training.workers import Workers

PROGRESS_S = 1.0
"""Minimum time between progress events."""


class Applied(NamedTuple):
    """A queued update, whose results may still be on the device."""

    number: int
    epoch: int
    source_tokens: int
    target_tokens: int
    learning_rate: float
    results: Tensor
    """Summed loss and nll, and the gradient norm (`TrainingStep.apply`)."""

    def read_back(self) -> dict[str, Any]:
        """Synchronises with the device; returns the update's metrics."""
        loss, nll, norm = self.results.tolist()
        return {
            "update": self.number,
            "epoch": self.epoch,
            "loss": loss / self.target_tokens,
            "nll": nll / self.target_tokens,
            "perplexity": perplexity_of(nll / self.target_tokens),
            "gradient_norm": norm,
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "learning_rate": self.learning_rate,
        }


class Report:
    """Reports the updates of a run: rank 0 writes and emits, every rank raises.

    Also its clock: the time between `resume` and the next report is spent on updates.
    """

    def __init__(
        self,
        workers: Workers,
        settings: TrainingSettings,
        state: TrainingState,
        read: Updates,
        folder: Path,
        build: Build,
        emit: Listener,
    ) -> None:
        """`folder` is that of metrics.jsonl, which `build` shares."""
        self.workers, self.settings, self.state, self.emit, self._read = workers, settings, state, emit, read
        self._file, self._build = folder / METRICS, build
        self.unread: list[Applied] = []
        """Updates queued on the device, not checked yet."""
        self._shown_s = 0.0

    def begin(self) -> None:
        """Starts the clock of a session."""
        self._logged = replace(self.state)
        self._shown_s = time.monotonic()
        self.resume()

    def resume(self) -> None:
        """Goes on with updates, after a report and what followed it."""
        self._resumed_s = time.monotonic()

    @property
    def progress_is_due(self) -> bool:
        """Whether rank 0 should report progress, by its clock."""
        is_due = self.state.update == self.settings.updates or time.monotonic() - self._shown_s >= PROGRESS_S
        return is_due and self.workers.rank == 0

    @property
    def is_finite(self) -> bool:
        """Whether all unchecked updates have finite results; synchronises with the device."""
        return not self.unread or self._first_not_finite() is None

    def updates(self, *, check: bool, log: bool) -> None:
        """Synchronises with the device; shows progress if that is due.

        `check`, at every rank at the same update: raises UserError for the first update with a non-finite loss or
        gradient. `log`: writes the newest update's metrics.
        """
        line, state = self.unread[-1].read_back(), self.state
        if check:
            self._check_finite()
            self.unread.clear()
        state.spend(time.monotonic() - self._resumed_s)
        state.data_wait_s += self._read.waited_s
        self._read.waited_s = 0.0
        state.peak_memory_gb = max(state.peak_memory_gb, peak_memory_bytes(self.workers.device) / 1e9)
        line |= self._speed()
        if self.progress_is_due and math.isfinite(line["loss"]):  # otherwise `_check_finite` will end the run
            shown = {name: line[name] for name in ("tokens_s", "loss")}
            self.emit({"done": state.update, "total": self.settings.updates, "unit": "updates", **shown})
            self._shown_s = time.monotonic()
        if log:
            self.write(line)
            self._logged = replace(self.state)

    def write(self, line: dict[str, Any]) -> None:
        """Appends a line to metrics.jsonl and emits it as an event."""
        if self.workers.rank == 0:
            self._build.check(every_s=CHECK_S)
            with self._file.open("a", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(line) + "\n")
            metrics = {name: value for name, value in line.items() if name != "update"}
            self.emit({"metrics": metrics, "step": line["update"]})

    def _speed(self) -> dict[str, float]:
        """Returns rates since the last line, and their share of the GPUs' measured rate (MFU), if there is one."""
        state, logged = self.state, self._logged
        seconds = state.train_s - logged.train_s
        flop_s = (state.update - logged.update) * self._read.mean_flop / seconds
        gpus_flop_s = sum(each.count * (each.matmul_flop_s or 0) for each in state.segments[-1].devices)
        return {
            "workers": self.workers.size,
            "tokens_s": (state.target_tokens - logged.target_tokens) / seconds,
            "flop_s": flop_s,
            **({"mfu": flop_s / gpus_flop_s} if gpus_flop_s else {}),
            "data_wait_s": state.data_wait_s - logged.data_wait_s,
            "peak_memory_gb": state.peak_memory_gb,
            "train_s": state.train_s,
        }

    def _first_not_finite(self) -> Applied | None:
        finite = torch.stack([update.results for update in self.unread]).isfinite().all(dim=1).tolist()
        return next((update for update, is_finite in zip(self.unread, finite, strict=True) if not is_finite), None)

    def _check_finite(self) -> None:
        if update := self._first_not_finite():
            (loss, _, norm), optimizer = update.results.tolist(), self.settings.optimizer
            raise UserError(
                f"update {update.number} (epoch {update.epoch}): the loss is {loss / update.target_tokens:.4g} and the "
                f"gradient norm {norm:.4g}, so the update was not applied; lower "
                f"optimizer.learning_rate_scale (now {optimizer.learning_rate_scale:g}), raise "
                f"optimizer.warmup_steps (now {optimizer.warmup_steps}) or set dtype = float32"
            )
