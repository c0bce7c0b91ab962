"""What a worker tries before the first update: the largest passes, in as many as fit, and passes as a CUDA graph."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from model.training_step import TrainingStep
from pipeline.errors import UserError
from pipeline.memory import gpu_snapshot, is_out_of_memory
from pipeline.text.encoding import EncodedSplit
from pipeline.training.devices import WorkerDevice
from pipeline.training.updates import Updates
from pipeline.training.validation import largest_batch, split_sums
from pipeline.training.workers import Workers

log = logging.getLogger(__name__)


def try_largest(workers: Workers, step: TrainingStep, updates: Updates, dev: EncodedSplit, folder: Path) -> None:
    """Computes the largest passes and dev batch once, so that none runs out of memory hours later; a collective.

    If a pass does not fit, divides all. Raises UserError at every rank if they cannot be divided or the dev batch does
    not fit; `folder` then has a snapshot of the GPU's memory.
    """

    def compute() -> None:
        for batch in updates.largest():
            step.accumulate(batch)

    with workers.raise_at_all_ranks():
        while not _fits(compute):
            if not updates.divide():
                raise UserError(
                    f"the smallest part of an update does not fit into the memory of {workers.device}; lower "
                    "budget_tokens or the encoding's max_tokens, or drop exact_reduction"
                    f"{gpu_snapshot(folder, workers.rank, compute)}"
                )
        step.discard()
        rows = largest_batch(dev)
        validate = partial(split_sums, step.model, dev, step.config.label_smoothing, of_rows=rows)
        with step.uncompiled():
            if not _fits(validate):
                source_tokens, target_tokens = (side.max() for side in dev.lengths_of(rows))
                raise UserError(
                    f"the largest dev batch, {len(rows)} pairs of {source_tokens} and {target_tokens} tokens, does not "
                    f"fit into the memory of {workers.device}; split the longest lines of the dev text"
                    f"{gpu_snapshot(folder, workers.rank, validate)}"
                )


def _fits(compute: Callable[[], object]) -> bool:
    """Whether a computation does not run out of memory."""
    try:
        compute()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


def capture(workers: Workers, step: TrainingStep, updates: Updates, devices: Sequence[WorkerDevice]) -> bool:
    """Captures a CUDA graph for packed batches on each device where it passes its check; True if on all.

    If memory is lacking, divides passes, or leaves them as they were if no division helps. A collective; `devices` are
    all workers' by rank. Those without a graph compute the same, but slow all down, so rank 0 logs a warning.
    """
    reason, n_passes = "not tried", updates.n_passes
    while reason:
        try:
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # a graph has memory of its own
            step.capture(updates.largest())
            reason = ""
        except (MemoryError, RuntimeError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            if not (is_out_of_memory(error) and updates.divide()):
                updates.compute_in(n_passes)
                break
    reasons = zip(devices, workers.gather_objects(reason), strict=True)
    failures = [f"{device.host}: {reason}" for device, reason in reasons if reason]
    if failures and workers.rank == 0:
        log.warning(
            "%d of %d workers compute passes without a CUDA graph, and all wait for the slowest (%s); "
            "speed = plain skips the attempt, and neither packs nor compiles",
            *(len(failures), workers.size, "; ".join(dict.fromkeys(failures))),
        )
    return not failures
