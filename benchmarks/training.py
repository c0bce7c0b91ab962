"""Benchmark of the training step: our loop, torch.nn.Transformer and MarianMT, on the same updates.

python -m benchmarks.training                            # 3+3 layers of width 256
python -m benchmarks.training --size base --json         # the paper's base
python -m benchmarks.training --no-peers --dtype float32

Each contender (`training_loops`) has a process and, after a warm-up, trains on the next few updates while the others
wait, round by round; so a slow minute of the machine affects all. A rate is real (not padding) target tokens per
second, the median over rounds. The roofline fraction is the FLOP/s of the matrix products of mean updates on real
tokens (`model.flops`), divided by the rate of a large square product in the same dtype: between updates on a CPU, whose
speed may change within seconds, before and after them on a GPU. Lengths are those of real text, ids are random.

Ray and MLflow are not needed. MarianMT is timed if `transformers` is installed: pip install -e '.[bench]'.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import typer

from benchmarks.contenders import OURS, Contender, is_installed, print_result, processes, ratio
from model.config import BASE, BIG, TransformerConfig
from pipeline.artifacts import EncodedDataset
from pipeline.environment import usable_cpus, worker_environment
from pipeline.settings import Dtype, TrainingSettings
from workflows.cli.console import App, help_text, run_app

TORCH, MARIAN = "torch.nn.Transformer", "MarianMT"
UPDATES = 2_000
"""Updates of a run whose first ones are timed. The largest pass of all its epochs is sought before."""
NEVER = 10**9  # updates
PAIRS = 40_000
"""Pairs at most, enough for 40 of the paper's updates."""


@dataclass(frozen=True)
class Size:
    """The model of a benchmark, and its batches."""

    model: TransformerConfig
    lengths: str
    """A key of `pipeline.corpora.lengths.LENGTHS`."""
    cpu_updates: int
    """Timed updates per round: about ten seconds on two cores."""
    gpu_batch_tokens: int = TrainingSettings().budget_tokens
    """Tokens per update on each side."""
    cpu_batch_tokens: int = 4_096

    def settings(self, dtype: Dtype = "auto", device: str | None = None) -> TrainingSettings:
        """Returns the settings of a run with only updates, and one line of metrics per round."""
        import torch

        device = device or ("gpu" if torch.cuda.is_available() else "cpu")
        return TrainingSettings.model_validate(
            {
                "model": self.model,
                "updates": UPDATES,
                "budget_tokens": self.gpu_batch_tokens if device == "gpu" else self.cpu_batch_tokens,
                "dtype": dtype,
                "checkpoint_updates": NEVER,
                "validation_updates": NEVER,
                "log_updates": NEVER,
                "workers": 1,
                "threads": usable_cpus(),
                "device": device,
            }
        )


SMALL = TransformerConfig(vocabulary_size=8_000, n_layers=3, d_model=256, d_ff=1024, n_heads=4)
TINY = TransformerConfig(vocabulary_size=300, n_layers=1, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16)
SIZES = {
    "tiny": Size(TINY, "multi30k", 1, gpu_batch_tokens=400, cpu_batch_tokens=400),
    "small": Size(SMALL, "multi30k", cpu_updates=8, gpu_batch_tokens=4_096),
    "base": Size(BASE, "wmt14", cpu_updates=3),
    "big": Size(BIG, "wmt14", cpu_updates=1),
}


def write_text(size: Size, folder: Path) -> EncodedDataset:
    """Writes a dataset for a benchmark into a folder."""
    from benchmarks.synthetic import write_dataset
    from pipeline.corpora.lengths import LENGTHS

    lengths = LENGTHS[size.lengths]
    lengths = replace(lengths, pairs=min(lengths.pairs, PAIRS))
    return write_dataset(folder / "dataset", lengths, size.model.vocabulary_size)


def measure(
    size: Size, settings: TrainingSettings, rounds: int = 3, updates: int | None = None, peers: bool = True
) -> dict[str, Any]:
    """Runs the benchmark and returns the output of --json.

    Raises UserError if our loop fails. A failed peer is reported, with null for its ratio.
    """
    from benchmarks.peers import Marian, TorchTransformer
    from benchmarks.training_loops import OurLoop, PlainLoop

    n_updates = updates or (50 if settings.device == "gpu" else size.cpu_updates)
    settings = settings.model_copy(update={"updates": UPDATES + rounds * n_updates})
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder, processes():
        dataset = write_text(size, Path(folder))
        ours = Contender(OURS, "", OurLoop, settings, dataset, Path(folder) / "run")
        contenders = [ours]
        ours.dtype, machine = ours.call("warm_up"), ours.call("machine")
        faster = machine.pop("bfloat16_is_faster")
        # Peers run in the dtypes that their users would choose on the device.
        types = ["float32"] * (settings.device == "cpu" or not faster) + ["bfloat16"] * faster
        models: list[tuple[str, Any, str]] = [(TORCH, TorchTransformer, types[0])]
        models += [(MARIAN, Marian, dtype) for dtype in types if is_installed("transformers")]
        for name, model, dtype in models if peers else []:
            contenders.append(Contender(name, dtype, PlainLoop, settings, dataset, model, dtype))
            contenders[-1].call("warm_up")
        for _ in range(rounds):
            for contender in contenders:
                contender.rounds += filter(None, [contender.call("round", n_updates)])
    return {
        "device": settings.device,
        **machine,
        "dtype": ours.dtype,
        "lengths": size.lengths,
        "vocabulary_size": size.model.vocabulary_size,
        "batch_tokens": settings.budget_tokens,
        "threads": settings.threads,
        "rounds": rounds,
        "updates": n_updates,
        **results(contenders, n_updates),
    }


def results(contenders: Sequence[Contender], updates: int) -> dict[str, Any]:
    """Returns rates, ratios and the roofline fraction. The first contender is ours; it has not failed."""
    ours, *peers = contenders
    by_ours = ours.rates("target_tokens")
    torchs, marian = _fastest(peers, TORCH), _fastest(peers, MARIAN)
    products = [done["matmul_flop_s"] for done in ours.rounds]
    fractions = [flop_s / product for flop_s, product in zip(ours.rates("counted_flop"), products, strict=True)]
    real_tokens = sum(done["source_tokens"] + done["target_tokens"] for done in ours.rounds)
    return {
        "tokens_s": median(by_ours),
        **ratio("ratio_torch", by_ours, torchs.rates("target_tokens") if torchs else []),
        **ratio("ratio_marian", by_ours, marian.rates("target_tokens") if marian else []),
        "roofline_fraction": median(fractions),
        "roofline_fraction_spread": [min(fractions), max(fractions)],
        "counted_flop_s": median(ours.rates("counted_flop")),
        "matmul_flop_s": median(products),
        "padding_fraction": 1 - real_tokens / sum(done["computed_tokens"] for done in ours.rounds),
        "peak_memory_gb": ours.rounds[-1]["peak_memory_gb"],
        "contenders": [_summary(contender, updates) for contender in contenders],
    }


def _fastest(peers: Sequence[Contender], name: str) -> Contender | None:
    """Returns the fastest peer of a library over dtypes."""
    of_library = [peer for peer in peers if peer.name == name and peer.rates("target_tokens")]
    return max(of_library, key=lambda peer: median(peer.rates("target_tokens")), default=None)


def _summary(contender: Contender, updates: int) -> dict[str, Any]:
    summary = contender.summary("target_tokens", "tokens_s")
    if not contender.failed:
        seconds = sum(done["seconds"] for done in contender.rounds)
        summary |= {
            "target_tokens": sum(done["target_tokens"] for done in contender.rounds),
            "seconds": seconds,
            "update_s": seconds / len(contender.rounds) / updates,
            "peak_memory_gb": contender.rounds[-1]["peak_memory_gb"],
        }
    return summary


app = App()


@app.command(help=help_text(__doc__))
def main(
    size: Annotated[
        Literal["tiny", "small", "base", "big"],
        typer.Option(help="small (3+3 layers of width 256), or the paper's base or big."),
    ] = "small",
    vocabulary_size: Annotated[int | None, typer.Option(min=8, help="Pieces.  [default: 8000 or 37000]")] = None,
    dtype: Annotated[Dtype, typer.Option(help="Of our step.")] = "auto",
    peers: Annotated[bool, typer.Option(help="Also time the peers' loops.")] = True,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds per loop.")] = 3,
    updates: Annotated[int | None, typer.Option(min=1, help="Updates per round.  [default: about ten seconds]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON object on one line.")] = False,
) -> None:
    """Compare the training step with torch.nn.Transformer and MarianMT, in real target tokens per second."""
    os.environ.update(worker_environment())
    chosen = SIZES[size]
    if vocabulary_size:
        chosen = replace(chosen, model=replace(chosen.model, vocabulary_size=vocabulary_size))
    print_result({"size": size, **measure(chosen, chosen.settings(dtype), rounds, updates, peers)}, as_json)


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.training")
