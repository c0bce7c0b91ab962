"""Times updates of small models, in one or two checkouts in turn: milliseconds of processor time on one thread.

    python tests/benchmarks/small_widths.py [--against CHECKOUT] [--widths 64,128] [--precisions float32,bfloat16]

Models have 3 layers and 4 heads; an update is one batch of about 390 tokens a side, whose lengths differ from batch to
batch, as short sentences' do. With `--against`, the other checkout's `model` computes the same, round by round.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
VOCABULARY, BATCH_TOKENS, LONGEST = 1000, 390, 26
WARM_UP_UPDATES = 20


def work(width: int, precision: str, updates: int) -> None:
    """Computes `updates` updates for every line on standard input, and answers with the time of each, in ms."""
    import torch

    from model.config import OptimizerConfig, TransformerConfig
    from model.training_step import TrainingStep
    from model.transformer import Transformer

    torch.set_num_threads(1)
    torch.manual_seed(1)
    size = width // 4
    config = TransformerConfig(
        vocabulary_size=VOCABULARY, n_layers=3, d_model=width, d_ff=4 * width, n_heads=4, d_k=size, d_v=size
    )
    step = TrainingStep(Transformer(config), OptimizerConfig(), getattr(torch, precision))
    lengths = torch.Generator().manual_seed(2)
    done = 0

    def update() -> None:
        nonlocal done
        done += 1
        n_source, n_target = torch.randint(8, LONGEST, (2,), generator=lengths).tolist()
        source_BS = torch.randint(4, VOCABULARY, (BATCH_TOKENS // n_source, n_source), generator=lengths)
        target_BT = torch.randint(4, VOCABULARY, (len(source_BS), n_target), generator=lengths)
        step.accumulate(source_BS, target_BT, seed=done)
        step.apply(done, target_BT.numel())

    for _ in range(WARM_UP_UPDATES):
        update()
    for _ in sys.stdin:
        began_s = time.process_time()
        for _ in range(updates):
            update()
        print(1000 * (time.process_time() - began_s) / updates, flush=True)


class Contender:
    """A checkout's process."""

    def __init__(self, checkout: Path, width: int, precision: str, updates: int) -> None:
        options = ["--work", f"{width},{precision},{updates}"]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *options],
            env={**os.environ, "PYTHONPATH": str(checkout.absolute())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.milliseconds: list[float] = []

    def round(self) -> None:
        """Times one round."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.milliseconds.append(float(self._process.stdout.readline()))

    def end(self) -> None:
        """Ends the process."""
        self._process.communicate()


def main() -> None:
    """Reads the options, and prints a line for each width and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--widths", default="64,128")
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--updates", type=int, default=40, help="a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        width, precision, updates = options.work.split(",")
        work(int(width), precision, int(updates))
        return
    checkouts = [ROOT, *([options.against] if options.against else [])]
    for width in map(int, options.widths.split(",")):
        for precision in options.precisions.split(","):
            contenders = [Contender(checkout, width, precision, options.updates) for checkout in checkouts]
            for _ in range(options.rounds):
                for contender in contenders:
                    contender.round()
            times = [contender.milliseconds for contender in contenders]
            told = "; ".join(f"{min(one):.1f} ms at least, {median(one):.1f} in the median" for one in times)
            ratios = [ours / theirs for ours, theirs in zip(times[0], times[-1], strict=True)]
            ratio = f"; ours over theirs {median(ratios):.2f}" if options.against else ""
            print(f"width {width}, {precision}: {told}{ratio}", flush=True)
            for contender in contenders:
                contender.end()


if __name__ == "__main__":
    main()
