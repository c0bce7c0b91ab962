"""Measures what the exact reduction costs: seconds per update with and without it, in interleaved rounds.

    python tests/benchmarks/exact_reduction.py [--size small] [--workers 1,2] [--updates 3] [--rounds 5]

Processes of one thread on this machine, gloo between them, 8 micro-batches an update, as many tokens as `aiayn bench`.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from pipeline.corpora.synthetic.lengths import LENGTHS, write_dataset
from pipeline.training.loop import Training
from pipeline.training.worker_group import WorkerGroup
from workflows.benchmarks.training import SIZES
from workflows.benchmarks.training_contenders import TrainingWorkload


def work(rank: int, workers: int, workload: TrainingWorkload, updates: int, rounds: int) -> None:
    """One worker: both trainings in interleaved rounds; rank 0 prints."""
    torch.set_num_threads(1)
    if workers > 1:
        meeting = f"file://{workload.run_folder}/{workers}.group"
        dist.init_process_group("gloo", meeting, world_size=workers, rank=rank)
    trainings, seconds = {}, {False: list[float](), True: list[float]()}
    for exact in seconds:
        folder = workload.run_folder / f"{workers}-{exact}"
        folder.mkdir(exist_ok=True)
        settings = workload.settings.model_copy(update={"exact_reduction": exact})
        training = Training(WorkerGroup(rank, workers), workload.dataset, settings, folder)
        training.resume()
        training.train(until=1)
        trainings[exact] = training
    for _ in range(rounds):
        for exact, training in trainings.items():
            began_s = time.perf_counter()
            training.train(until=training.state.update + updates)
            seconds[exact].append((time.perf_counter() - began_s) / updates)
    if rank == 0:
        ratios = [exact_s / plain_s for plain_s, exact_s in zip(seconds[False], seconds[True], strict=True)]
        print(
            f"{workers} workers: {median(seconds[False]):.3f} s an update, exact {median(seconds[True]):.3f} s; "
            f"ratio {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
            flush=True,
        )
    if workers > 1:
        dist.destroy_process_group()


def main() -> None:
    """Reads the options and starts the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--updates", type=int, default=3, help="a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    size = SIZES[options.size]
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as name:
        dataset = write_dataset(Path(name) / "dataset", LENGTHS[size.lengths], size.model.vocabulary_size)
        workload = TrainingWorkload(
            size.model, dataset, Path(name), size.cpu_batch_tokens, "cpu", "auto", 1, micro_batches=8
        )
        for workers in map(int, options.workers.split(",")):
            torch.multiprocessing.spawn(work, (workers, workload, options.updates, options.rounds), nprocs=workers)


if __name__ == "__main__":
    main()
