"""What one core does for a training on a large corpus: the plan of an epoch, and reading the updates it plans.

For `aiayn bench prepare`, in a process of its own (`workflows.benchmarks.processes`) that computes with one thread.
"""

import time
from typing import Any

import numpy as np
import torch

from model.config import BASE
from pipeline.corpora.synthetic.lengths import LENGTHS, draw_lengths
from pipeline.hardware import device_name
from pipeline.memory import forget_peak_memory, peak_memory_bytes
from pipeline.settings import TrainingSettings
from pipeline.store.artifacts import EncodedDataset
from pipeline.text.batching import plan_epoch
from pipeline.text.encoding import EncodedSplit
from pipeline.training.prefetching import Updates
from pipeline.training.worker_group import WorkerGroup
from workflows.forecast.hardware import GPUS, Hardware

DRAWN_PAIRS = 1_000_000
"""At one time."""
READ_S = 5.0
SETTINGS = TrainingSettings(model=BASE)
"""The paper's base model, 25 000 tokens an update on either side."""
GPU, ASSUMED_FRACTION = "h200", 0.5
"""What is to be fed, and the share of its published rate that training might reach."""


class SingleCoreCost:
    """Called in its process, a method at a time."""

    def plan(self, pairs: int) -> dict[str, Any]:
        """Plans an epoch of pairs of WMT14's lengths: {"pairs", "seconds", "peak_memory_gb", "padding_fraction", ...}.

        The lengths, int32, are there before, as they are in a training, and count as memory.
        """
        torch.set_num_threads(1)
        random = np.random.default_rng(1)
        lengths = np.empty((2, pairs), np.int32)
        for begin in range(0, pairs, DRAWN_PAIRS):
            block = lengths[:, begin : begin + DRAWN_PAIRS]
            block[:] = draw_lengths(LENGTHS["wmt14"], block.shape[1], random)
        forget_peak_memory()
        started_s = time.perf_counter()
        plan = plan_epoch(lengths[0], lengths[1], SETTINGS.plan, epoch=0)
        return {
            "pairs": pairs,
            "seconds": time.perf_counter() - started_s,
            "peak_memory_gb": peak_memory_bytes() / 1e9,
            "padding_fraction": plan.padding_fraction,
            "updates": len(plan),
            "device_name": device_name("cpu"),
        }

    def read(self, dataset: EncodedDataset) -> dict[str, Any]:
        """Reads updates of the paper's base model as its training does: rates, and beside a GPU's."""
        updates = Updates(EncodedSplit.open(dataset, "train"), SETTINGS, WorkerGroup(0, 1, "cpu"))
        read, target_tokens, flop, started_s = 0, 0, 0.0, time.perf_counter()
        for update in updates.between(0, 10**9):
            read, target_tokens, flop = read + 1, target_tokens + update.target_tokens, flop + update.flop
            seconds = time.perf_counter() - started_s
            if seconds > READ_S:
                break
        assumed_flop_s = Hardware("gpu", GPU, 1, GPUS[GPU]).flop_s("bfloat16")[1] * ASSUMED_FRACTION
        return {
            "updates_s": read / seconds,
            "target_tokens_s": target_tokens / seconds,
            "gpu": GPUS[GPU].name,
            "assumed_fraction": ASSUMED_FRACTION,
            "assumed_flop_s": assumed_flop_s,
            "ratio_gpu": flop / seconds / assumed_flop_s,
        }
