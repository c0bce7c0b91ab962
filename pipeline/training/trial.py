"""What a worker tries before the first update: the largest batches, and micro-batches as a CUDA graph."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from model.training_step import TrainingStep
from pipeline.errors import UserError
from pipeline.memory import is_out_of_memory
from pipeline.text.encoding import EncodedSplit
from pipeline.training.devices import WorkerDevice
from pipeline.training.updates import Updates
from pipeline.training.validation import largest_batch, split_sums
from pipeline.training.workers import Workers

log = logging.getLogger(__name__)


def try_largest(workers: Workers, step: TrainingStep, updates: Updates, dev: EncodedSplit, smoothing: float) -> None:
    """Computes the largest batches once, so that none runs out of memory hours later; a collective.

    Raises UserError at every rank if one does not fit.
    """
    with workers.raise_at_all_ranks():
        remedy = "raise micro_batches, or lower budget_tokens or the encoding's max_tokens"
        for rows in updates.largest:
            with _fits("micro-batch", rows, updates.split, workers.device, remedy):
                step.accumulate(updates.batch(rows), seed=0)
        step.discard()
        rows = largest_batch(dev)
        remedy = "split the longest lines of the dev text"
        with _fits("dev batch", rows, dev, workers.device, remedy), step.uncompiled():
            split_sums(step.model, dev, smoothing, of_rows=rows)


@contextmanager
def _fits(name: str, rows: NDArray[np.int64], split: EncodedSplit, device: str, remedy: str) -> Iterator[None]:
    """Raises UserError if the body runs out of memory on these rows, the largest batch of its kind."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        source_tokens, target_tokens = (side.max() for side in split.lengths_of(rows))
        raise UserError(
            f"the largest {name}, {len(rows)} pairs of {source_tokens} and {target_tokens} tokens, does not fit "
            f"into the memory of {device}; {remedy}"
        ) from error


def capture(workers: Workers, step: TrainingStep, updates: Updates, devices: Sequence[WorkerDevice]) -> bool:
    """Captures a CUDA graph for packed micro-batches on each device where it passes its check; True if on all.

    A collective; `devices` are all workers' by rank. The other devices compute the same without one, but all workers
    wait for them, so rank 0 logs a warning.
    """
    rows = updates.largest[0]
    reason = ""
    try:
        step.capture([updates.batch(part) for part in (rows, rows[:1])])
    except (MemoryError, RuntimeError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    reasons = zip(devices, workers.gather_objects(reason), strict=True)
    failures = [f"{device.host}: {reason}" for device, reason in reasons if reason]
    if failures and workers.rank == 0:
        log.warning(
            "%d of %d workers compute micro-batches without a CUDA graph, and all wait for the slowest (%s); "
            "speed = plain skips the attempt, but also disables packing and compilation",
            len(failures),
            workers.size,
            "; ".join(dict.fromkeys(failures)),
        )
    return not failures
