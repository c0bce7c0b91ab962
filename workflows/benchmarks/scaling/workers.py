"""One of several workers whose updates `aiayn bench scale` times.

An update is the training's own (`pipeline.training.loop`). Where it adds up gradients, the workers first wait for each
other, so that the time for which a worker waits is told from the time that the sum itself takes.
"""

import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.training.rendezvous import join
from pipeline.training.worker_group import BACKENDS, WorkerGroup
from workflows.benchmarks.training_contenders import OurLoop, TrainingWorkload

MEET_S = 600.0


@dataclass
class Spent:
    """Seconds so far."""

    waiting_s: float = 0.0
    exchanging_s: float = 0.0


@dataclass(frozen=True)
class TimedGroup(WorkerGroup):
    """A group that measures how long its sums take, apart from the wait for the last worker."""

    spent: Spent = field(default_factory=Spent, compare=False)

    def sum(self, tensor: Tensor) -> Tensor:
        """See `WorkerGroup.sum`."""
        if self.size == 1:
            return tensor
        began_s = self._now_s()
        dist.barrier()
        met_s = self._now_s()
        super().sum(tensor)
        self.spent.waiting_s += met_s - began_s
        self.spent.exchanging_s += self._now_s() - met_s
        return tensor

    def _now_s(self) -> float:
        """Reads the clock once the device has done what was asked of it before."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class Share(NamedTuple):
    """What some updates took at one worker."""

    seconds: float
    waiting_s: float
    exchanging_s: float
    processor_s: float
    """Processor time of this worker's process."""
    target_tokens: int
    """Real target tokens of the updates, those of the other workers included."""


class TimedWorker(OurLoop):
    """Our loop as number `rank` of `size` workers, which meet at `port` on this machine."""

    def __init__(self, workload: TrainingWorkload, rank: int, size: int, port: int) -> None:
        device = "cpu" if workload.device == "cpu" else f"cuda:{rank}"
        group = TimedGroup(rank, size, device)
        if size > 1:
            join("127.0.0.1", port, rank, size, BACKENDS[workload.torch_device], MEET_S)
        super().__init__(replace(workload, run_folder=workload.run_folder / str(size)), group)
        self.spent = group.spent

    def share(self, n_updates: int) -> Share:
        """Times the next `n_updates` updates; all workers of the group must be asked at once."""
        before, processor_s = replace(self.spent), time.process_time()
        done = self.round(n_updates)
        return Share(
            done.seconds,
            self.spent.waiting_s - before.waiting_s,
            self.spent.exchanging_s - before.exchanging_s,
            time.process_time() - processor_s,
            done.work.target_tokens,
        )

    def parameters(self) -> int:
        """Returns the number of weights, each of which has a gradient to exchange."""
        return self.training.step.gradient_P.numel()
