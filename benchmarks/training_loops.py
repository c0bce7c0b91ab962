"""The training loops that `benchmarks.training` compares, on the same updates, read by the same code.

The peers' loops are those of a good tutorial: the library's model (`peers`), cross entropy with label smoothing, and
Adam (fused, like ours) with the paper's schedule. Attention is the library's fused kernel; bfloat16 is by autocast.

Shapes: B batch, S source length, T target length, V vocabulary.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from model.batch import Batch, shift_right
from model.config import PAD_ID, TransformerConfig
from model.training_step import learning_rate
from pipeline.artifacts import EncodedDataset
from pipeline.hardware import compute_dtype, device_name, dtype_name, dtype_of, matmul_flop_s
from pipeline.memory import peak_memory_bytes
from pipeline.settings import Dtype, TrainingSettings
from pipeline.text.encoding import EncodedSplit
from pipeline.training.checkpoints import TrainingState
from pipeline.training.loop import Training
from pipeline.training.updates import Updates
from pipeline.training.workers import Workers

Make = Callable[[TransformerConfig], nn.Module]
WARM_UP_UPDATES = {"cpu": 1, "cuda": 10}
"""Untimed updates by device. In the first ones, a GPU compiles kernels, chooses algorithms and raises its clock."""
COUNTED = ("source_tokens", "target_tokens", "computed_tokens")


class TrainingLoop:
    """A loop that runs in parts. Subclasses define `_train`, which updates the counters in `state`."""

    dtype: torch.dtype
    state: TrainingState
    updates: Updates

    def __init__(self, settings: TrainingSettings) -> None:
        self.device = "cuda" if settings.device == "gpu" else "cpu"
        torch.set_num_threads(settings.threads)

    def _train(self, n_updates: int) -> None:
        raise NotImplementedError

    def warm_up(self) -> str:
        """Runs the plan's largest batches and some updates, untimed. Returns the name of the dtype."""
        self._train(WARM_UP_UPDATES[self.device])
        return dtype_name(self.dtype)

    def round(self, n_updates: int) -> dict[str, float]:
        """Times the next updates. Returns COUNTED's increments, the FLOP of as many mean updates, seconds, and the peak
        memory so far in GB: the process's on a CPU, torch's allocations on a GPU.
        """
        on_gpu, before = self.device == "cuda", replace(self.state)
        if on_gpu:
            torch.cuda.synchronize()
        started_s = time.perf_counter()
        self._train(n_updates)
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started_s
        peak_bytes = torch.cuda.max_memory_allocated() if on_gpu else peak_memory_bytes()
        counted = {name: getattr(self.state, name) - getattr(before, name) for name in COUNTED}
        counted["counted_flop"] = n_updates * self.updates.mean_flop
        return {**counted, "seconds": seconds, "peak_memory_gb": peak_bytes / 1e9}


class OurLoop(TrainingLoop):
    """The full `pipeline.training.loop`: it reads, steps, checks the loss and writes metrics."""

    def __init__(self, settings: TrainingSettings, dataset: EncodedDataset, folder: Path) -> None:
        super().__init__(settings)
        folder.mkdir()
        self.training = Training(Workers(device=self.device), dataset, settings, folder)
        self.training.writer.writes_recovery = False  # otherwise the first update would write a checkpoint
        self.dtype, self.updates = self.training.negotiated.dtype, self.training.updates
        self.state = self.training.state

    def machine(self) -> dict[str, Any]:
        """Returns the device's name, the form of the step, and whether bfloat16 is faster."""
        return {
            "device_name": device_name(self.device),
            "compiled": self.training.step.compiled,
            "packed": self.training.negotiated.form == "packed",
            "captured": self.training.step.captured is not None,
            "bfloat16_is_faster": compute_dtype(self.device) == torch.bfloat16,
        }

    def round(self, n_updates: int) -> dict[str, float]:
        """Adds the mean rate of a large matrix product before, after and, on a CPU, between the updates."""
        n_parts = 1 if self.device == "cuda" else n_updates
        rates, parts = [matmul_flop_s(self.device, self.dtype)], []
        for _ in range(n_parts):
            parts.append(super().round(n_updates // n_parts))
            rates.append(matmul_flop_s(self.device, self.dtype))
        sums = {name: sum(part[name] for part in parts) for name in parts[0]}
        return {**sums, "peak_memory_gb": parts[-1]["peak_memory_gb"], "matmul_flop_s": fmean(rates)}

    def _train(self, n_updates: int) -> None:
        self.training.train(until=self.state.update + n_updates)


class PlainLoop(TrainingLoop):
    """The usual loop around a model that maps (source_BS, inputs_BT) to logits_BTV; a pass an update on a GPU."""

    def __init__(self, settings: TrainingSettings, dataset: EncodedDataset, make: Make, dtype: Dtype) -> None:
        super().__init__(settings)
        torch.backends.cuda.enable_cudnn_sdp(False)  # it would plan again for each shape
        self.dtype, self.state = dtype_of(dtype, self.device), TrainingState()
        settings = settings.model_copy(update={"pass_tokens": settings.budget_tokens * (self.device == "cuda")})
        workers = Workers(device=self.device)
        self.updates = Updates(EncodedSplit.open(dataset, "train"), settings, workers, torch.float32)
        torch.manual_seed(settings.seed)
        self.model = make(settings.model).to(self.device).train()
        optimizer = settings.optimizer
        self.criterion = nn.CrossEntropyLoss(ignore_index=PAD_ID, label_smoothing=optimizer.label_smoothing)
        betas = optimizer.beta_1, optimizer.beta_2
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1.0, betas=betas, eps=optimizer.epsilon, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.adam, lambda update: learning_rate(update + 1, settings.model.d_model, optimizer.warmup_steps)
        )

    def loss(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Returns a batch's label-smoothed cross entropy per target token."""
        lower = self.dtype != torch.float32
        autocast: AbstractContextManager[Any] = torch.autocast(self.device, self.dtype) if lower else nullcontext()
        with autocast:
            logits_BTV = self.model(source_BS, shift_right(target_BT))
            loss: Tensor = self.criterion(logits_BTV.flatten(0, 1), target_BT.flatten())
        return loss

    def _sides(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns source_BS and target_BT of a padded batch on the device."""
        source_BS = batch.source.tokens_N.view(-1, batch.source.n_positions)
        target_BT = batch.targets_N.view(-1, batch.inputs.n_positions)
        return source_BS.to(self.device, non_blocking=True), target_BT.to(self.device, non_blocking=True)

    def warm_up(self) -> str:
        for batch in self.updates.largest():
            self.loss(*self._sides(batch)).backward()
        self.adam.zero_grad()
        return super().warm_up()

    def _train(self, n_updates: int) -> None:
        loss = torch.zeros(())
        state = self.state
        for update in self.updates.between(state.update, state.update + n_updates):
            self.adam.zero_grad()
            batches = [batch for part in update.mine for batch in part.batches]
            for batch in batches:
                loss = self.loss(*self._sides(batch))
                (loss / len(batches)).backward()
            self.adam.step()
            self.schedule.step()
            state.update += 1
            state.source_tokens += update.source_tokens
            state.target_tokens += update.target_tokens
            state.computed_tokens += update.computed_tokens
        if not math.isfinite(loss.item()):
            raise ArithmeticError(f"the loss is {loss.item()} after update {state.update}")
