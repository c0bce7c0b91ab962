"""What training on a large corpus costs one core: planning an epoch, and reading the updates of the plan.

`aiayn bench prepare` runs this in a separate process (`workflows.benchmarks.processes`) with one thread.
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
"""Pairs whose lengths are drawn at one time."""
READ_S = 5.0
"""Seconds for which updates are read."""
SETTINGS = TrainingSettings(model=BASE)
"""The paper's training of the base model."""
GPU, ASSUMED_FRACTION = "h200", 0.5
"""The GPU to be fed, and the share of its published rate that training is assumed to reach."""


class SingleCoreCost:
    """The measurements, called one at a time in their process."""

    def plan(self, pairs: int) -> dict[str, Any]:
        """Plans an epoch of pairs with WMT14's lengths: {"pairs", "seconds", "peak_memory_gb", ...}.

        The int32 lengths are in memory before the clock starts, as in a training, and count towards peak memory.
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
        """Reads updates as training the paper's base model does, and compares their rate with a GPU's."""
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
