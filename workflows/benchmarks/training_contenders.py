"""The training loops that `aiayn bench train` compares: ours, torch's own Transformer, and Hugging Face's MarianMT.

All three take the same batches of the same plan from the same files, prefetched by the same code. The other two are
the loops of a good tutorial: the library's model (`peer_models`), cross entropy with label smoothing, and Adam (fused,
like ours) with the paper's schedule. On a CPU they compute in float32, MarianMT also in bfloat16; on a GPU in bfloat16
alone. bfloat16 is torch.autocast's, and attention is the library's fused kernel.

Shapes: B batch, S source length, T target length, V vocabulary.
"""

import math
import operator
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from model.config import PAD_ID, TransformerConfig
from model.optimizer import learning_rate
from model.training_step import shift_right
from pipeline.hardware import compute_dtype, device_name, dtype_name, matmul_flop_s
from pipeline.memory import peak_memory_bytes
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import ignore
from pipeline.store.artifacts import EncodedDataset
from pipeline.text.encoding import EncodedSplit
from pipeline.training.loop import Training
from pipeline.training.prefetching import Updates
from pipeline.training.worker_group import WorkerGroup
from workflows.benchmarks.peer_models import Marian, TorchTransformer

WARM_UP_UPDATES = {"cpu": 1, "gpu": 10}
"""Untimed updates by device: a GPU compiles kernels, chooses algorithms and raises its clock in the first ones."""
PROFILED_UPDATES = 2
PROFILED_OPERATIONS = 25
"""Number of operations described in the result of a profile, those that take the most time."""
NEVER = 10**9
"""An interval in updates for what must not happen while the clock runs."""


@dataclass(frozen=True)
class TrainingWorkload:
    """The input that every contender is given."""

    model: TransformerConfig
    dataset: EncodedDataset
    run_folder: Path
    """Folder that our loop writes to."""
    batch_tokens: int
    """Budget of one update, of which each micro-batch has its share."""
    device: Literal["cpu", "gpu"]
    precision: str
    """Precision of our step: auto, float32 or bfloat16."""
    threads: int
    micro_batches: int = 1
    compiled: bool = True
    """Compile our layers where training does."""
    exchange: Literal["float32", "bfloat16"] = "float32"
    """The type in which several workers add up their gradients."""

    @property
    def torch_device(self) -> str:
        """The device's name in torch."""
        return "cuda" if self.device == "gpu" else "cpu"

    @property
    def settings(self) -> TrainingSettings:
        """Settings of our training, which does nothing but updates and one line of metrics per round."""
        return TrainingSettings(
            model=self.model,
            updates=NEVER,
            budget_tokens=self.batch_tokens,
            micro_batches=self.micro_batches,
            precision=self.precision,
            checkpoint_updates=NEVER,
            validation_updates=NEVER,
            log_updates=NEVER,
            workers=1,
            threads=self.threads,
            device=self.device,
            compiled=self.compiled,
            exchange=self.exchange,
        )


@dataclass(frozen=True)
class Work:
    """Totals over some updates."""

    source_tokens: int = 0
    """Source tokens without padding."""
    target_tokens: int = 0
    """Target tokens without padding."""
    padded_tokens: int = 0
    """Source and target tokens including padding."""
    flop: float = 0.0
    """Operations of the matrix products that the tokens need, forward and backward."""

    def __add__(self, other: "Work") -> "Work":
        return Work(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, other: "Work") -> "Work":
        return Work(*map(operator.sub, astuple(self), astuple(other)))


class TrainingRound(NamedTuple):
    """One timed run of some updates."""

    work: Work
    seconds: float
    peak_memory_gb: float
    """Peak so far: of the process on a CPU, of torch's allocations on a GPU."""


class TrainingContender:
    """A training loop that can be run in parts; subclasses define `_train`."""

    dtype: torch.dtype

    def __init__(self, workload: TrainingWorkload) -> None:
        self.workload, self.device = workload, workload.torch_device
        torch.set_num_threads(workload.threads)

    def _train(self, n_updates: int) -> Work:
        raise NotImplementedError

    def warm_up(self) -> str:
        """Runs the plan's largest batches and some updates, untimed. Returns the name of the computation's type."""
        self._train(WARM_UP_UPDATES[self.workload.device])
        return dtype_name(self.dtype)

    def round(self, n_updates: int) -> TrainingRound:
        """Times the next `n_updates` updates."""
        on_gpu = self.device == "cuda"
        if on_gpu:
            torch.cuda.synchronize()
        started_s = time.perf_counter()
        work = self._train(n_updates)
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started_s
        peak_bytes = torch.cuda.max_memory_allocated() if on_gpu else peak_memory_bytes()
        return TrainingRound(work, seconds, peak_bytes / 1e9)

    def matmul_flop_s(self) -> float:
        """Measures the rate of a large matrix product in the same type with the same threads."""
        return matmul_flop_s(self.device, self.dtype)

    def is_compiled(self) -> bool:
        """Returns True if the layers are compiled."""
        return False

    def bfloat16_is_faster(self) -> bool:
        """Returns True if the device is faster in bfloat16, so that autocast is worth timing."""
        return compute_dtype(self.device) == torch.bfloat16

    def device_name(self) -> str:
        """Returns the name of the processor or GPU."""
        return device_name(self.device)


class OurLoop(TrainingContender):
    """The whole of `pipeline.training.loop`: it reads, steps, watches the loss and writes its line of metrics."""

    def __init__(self, workload: TrainingWorkload, group: WorkerGroup | None = None) -> None:
        super().__init__(workload)
        workload.run_folder.mkdir(parents=True, exist_ok=True)
        group = group or WorkerGroup(device=self.device)
        self.training = Training(group, workload.dataset, workload.settings, workload.run_folder, ignore)
        self.training.resume()
        self.dtype = self.training.agreement.dtype

    def is_compiled(self) -> bool:
        return self.training.step.compiled

    def _train(self, n_updates: int) -> Work:
        before = self._done()
        self.training.train(until=self.training.state.update + n_updates)
        return self._done() - before

    def profile(self, trace: Path) -> dict[str, Any]:
        """Runs the next updates under torch's profiler and writes their Chrome trace, gzipped if so named.

        Returns the operations that took the most time: kernels on a GPU, operators on a CPU.
        """
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.device == "cuda" else [])]
        with profile(activities=activities) as profiler:
            started_s = time.perf_counter()
            self._train(PROFILED_UPDATES)
            if self.device == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - started_s
        trace.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(trace))
        return {"updates": PROFILED_UPDATES, "seconds": seconds, **_busiest(profiler.key_averages(), self.device)}

    def _done(self) -> Work:
        state = self.training.state
        return Work(state.source_tokens, state.target_tokens, state.padded_tokens, state.counted_flop)


class OurLoopWithCheckpoints(OurLoop):
    """Our loop with one checkpoint per round, begun after the first update and on disk before the round ends."""

    def __init__(self, workload: TrainingWorkload) -> None:
        super().__init__(replace(workload, run_folder=workload.run_folder / "saving"))

    def _train(self, n_updates: int) -> Work:
        done = super()._train(1)
        self.training.writer.begin(self.training.step, self.training.state, kept=True, recovery=True)
        if n_updates > 1:
            done += super()._train(n_updates - 1)
        self.training.writer.wait()
        return done


class PlainLoop(TrainingContender):
    """The loop most people would write around a module that maps (source_BS, inputs_BT) to logits_BTV."""

    def __init__(
        self, workload: TrainingWorkload, make_model: Callable[[TransformerConfig], nn.Module], dtype: torch.dtype
    ) -> None:
        super().__init__(workload)
        settings = workload.settings
        self.dtype, self.done = dtype, 0
        split = EncodedSplit.open(workload.dataset, "train")
        self.updates = Updates(split, settings, WorkerGroup(device=self.device))
        torch.manual_seed(settings.seed)
        self.model = make_model(workload.model).to(self.device).train()
        optimizer = settings.optimizer
        self.criterion = nn.CrossEntropyLoss(ignore_index=PAD_ID, label_smoothing=optimizer.label_smoothing)
        self.adam = torch.optim.Adam(
            self.model.parameters(),
            lr=1.0,
            betas=(optimizer.beta_1, optimizer.beta_2),
            eps=optimizer.epsilon,
            fused=True,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.adam, lambda update: learning_rate(update + 1, workload.model.d_model, optimizer.warmup_steps)
        )

    def loss(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Computes the label-smoothed cross entropy per target token of one micro-batch."""
        lower = self.dtype != torch.float32
        precision: AbstractContextManager[Any] = torch.autocast(self.device, self.dtype) if lower else nullcontext()
        with precision:
            logits_BTV = self.model(source_BS, shift_right(target_BT))
            loss: Tensor = self.criterion(logits_BTV.flatten(0, 1), target_BT.flatten())
        return loss

    def warm_up(self) -> str:
        for rows in self.updates.largest:
            source_BS, target_BT = self.updates.split.batch(rows)
            self.loss(source_BS.to(self.device), target_BT.to(self.device)).backward()
        self.adam.zero_grad()
        return super().warm_up()

    def _train(self, n_updates: int) -> Work:
        work, loss = Work(), torch.zeros(())
        for update in self.updates.between(self.done, self.done + n_updates):
            self.adam.zero_grad()
            for batch in update.mine:
                source_BS = batch.source_BS.to(self.device, non_blocking=True)
                target_BT = batch.target_BT.to(self.device, non_blocking=True)
                loss = self.loss(source_BS, target_BT)
                (loss / len(update.mine)).backward()
            self.adam.step()
            self.schedule.step()
            work += Work(update.source_tokens, update.target_tokens, update.padded_tokens, update.flop)
        self.done += n_updates
        if not math.isfinite(loss.item()):
            raise ArithmeticError(f"the loss is {loss.item()} after update {self.done}")
        return work


def _busiest(averages: Sequence[Any], device: str) -> dict[str, Any]:
    """Describes the operations that took the most time in a profile, and the time of all of them."""
    if device == "cuda":  # an operator's device time is that of its kernels, which have rows of their own
        kernels = [row for row in averages if row.device_type == DeviceType.CUDA and not row.is_user_annotation]
        times = [(row.key, row.count, row.self_device_time_total / 1e6) for row in kernels]
    else:
        times = [(row.key, row.count, row.self_cpu_time_total / 1e6) for row in averages]
    times.sort(key=operator.itemgetter(2), reverse=True)
    operations = [{"name": name, "calls": calls, "seconds": s} for name, calls, s in times[:PROFILED_OPERATIONS]]
    return {"operations": operations, "operations_s": math.fsum(s for _, _, s in times)}


def torch_float32(workload: TrainingWorkload) -> PlainLoop:
    """Makes the loop around torch.nn.Transformer in float32."""
    return PlainLoop(workload, TorchTransformer, torch.float32)


def torch_bfloat16(workload: TrainingWorkload) -> PlainLoop:
    """Makes the loop around torch.nn.Transformer in bfloat16, under torch.autocast."""
    return PlainLoop(workload, TorchTransformer, torch.bfloat16)


def marian_float32(workload: TrainingWorkload) -> PlainLoop:
    """Makes the loop around MarianMT in float32."""
    return PlainLoop(workload, Marian, torch.float32)


def marian_bfloat16(workload: TrainingWorkload) -> PlainLoop:
    """Makes the loop around MarianMT in bfloat16, under torch.autocast."""
    return PlainLoop(workload, Marian, torch.bfloat16)
