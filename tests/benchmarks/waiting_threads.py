"""Measures how threads that wait should wait: training rates by GNU OpenMP's spin count, alone and disturbed.

    python tests/benchmarks/waiting_threads.py [--spins 300000,1000] [--size small] [--batch-tokens 1250] [--rounds 5]

Where a product is shared among threads, those that are done wait for the others, and by default they spin,
GOMP_SPINCOUNT times, before they sleep. A processor that another program needs then spins instead. Each count has a
process of its own; all are timed in turn, first on the machine as it is, then beside a process that never rests.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from pipeline.corpora.synthetic.lengths import LENGTHS, write_dataset
from pipeline.environment import worker_environment
from workflows.benchmarks.load import Clocks, load_since, sentence
from workflows.benchmarks.processes import ContenderProcess
from workflows.benchmarks.training import SIZES
from workflows.benchmarks.training_contenders import OurLoop, TrainingRound, TrainingWorkload

BUSY = [sys.executable, "-c", "while True: pass"]


def rates(processes: Sequence[ContenderProcess], updates: int, rounds: int) -> list[list[float]]:
    """Returns each process's target tokens per second, by round."""
    found: list[list[float]] = [[] for _ in processes]
    for _ in range(rounds):
        for process, rate in zip(processes, found, strict=True):
            done: TrainingRound = process.call("round", updates)
            rate.append(done.work.target_tokens / done.seconds)
    return found


def main() -> None:
    """Reads the options, times all counts in both conditions and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spins", default="300000,10000,1000,0")
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--batch-tokens", type=int, help="the size's, if not given")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--updates", type=int, default=4, help="a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    size, counts = SIZES[options.size], options.spins.split(",")
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as name, ExitStack() as stack:
        dataset = write_dataset(Path(name) / "dataset", LENGTHS[size.lengths], size.model.vocabulary_size)
        processes = []
        for count in counts:
            folder = Path(name) / count
            folder.mkdir()
            batch_tokens = options.batch_tokens or size.cpu_batch_tokens
            workload = TrainingWorkload(
                size.model, dataset, folder, batch_tokens, "cpu", options.precision, options.threads
            )
            process = ContenderProcess(OurLoop, workload, environment={**worker_environment(), "GOMP_SPINCOUNT": count})
            processes.append(stack.enter_context(process))
            process.call("warm_up")
        alone = rates(processes, options.updates, options.rounds)
        with subprocess.Popen(BUSY) as other:
            began = Clocks.read()
            disturbed = rates(processes, options.updates, options.rounds)
            load = load_since(began)
            other.kill()
    for count, quiet, beside in zip(counts, alone, disturbed, strict=True):
        print(
            f"spin count {count:>7}: {median(quiet):6.0f} target tokens/s alone "
            f"({min(quiet):.0f} to {max(quiet):.0f}), "
            f"{median(beside):6.0f} disturbed ({min(beside):.0f} to {max(beside):.0f})"
        )
    print(f"disturbed: {sentence(load)}")


if __name__ == "__main__":
    main()
