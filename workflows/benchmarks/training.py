"""Benchmark of the training step: our loop, torch.nn.Transformer and MarianMT in one run on the same batches.

    python -m workflows.benchmarks.training                       # the same as `aiayn bench train`
    python -m workflows.benchmarks.training --size base --json

Each contender (`training_contenders`) runs in its own process and waits while another computes. After a warm-up the
contenders are timed in interleaved rounds: ours trains on the next few updates of the plan, then the next contender on
the same updates, and so on, so that a slow minute of the machine affects all of them and shows in the spread over the
rounds. A rate is real (not padding) target tokens per second in one round; the printed rates are medians over the
rounds, and a ratio is the quotient of two medians. An update has as many micro-batches as in training (8 for the
paper's models), because smaller products are slower, on a GPU above all.

The roofline fraction compares two rates: the floating-point operations of the matrix products that real tokens need
(`model.flops`), per second of training, over the rate of a large square matrix product in the same type, measured
before each round. The benchmark does not cover several devices or the start of a training (reading weights, the first
batch).

It needs neither Ray nor MLflow. MarianMT takes part if `transformers` is installed: pip install -e '.[bench]'.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from model.config import BASE, BIG, TransformerConfig
from pipeline.errors import UserError
from pipeline.settings import Device, Precision, TrainingSettings
from workflows.benchmarks.load import sentence
from workflows.benchmarks.processes import ContenderProcess, RunningContender
from workflows.benchmarks.rounds import find_device, is_installed, with_status_line
from workflows.benchmarks.training_rates import IN_RAY, MARIAN, OURS, SAVING, TORCH, TrainingRates, figures, print_table
from workflows.console.command import console, run_app
from workflows.console.options import one_of

if TYPE_CHECKING:  # the module imports torch
    from workflows.benchmarks.training_contenders import PlainLoop, TrainingContender, TrainingWorkload


@dataclass(frozen=True)
class Size:
    """The model that a benchmark trains, and on what batches."""

    name: str
    model: TransformerConfig
    lengths: str
    """A key of `pipeline.corpora.synthetic.lengths.LENGTHS`."""
    cpu_batch_tokens: int
    gpu_batch_tokens: int
    cpu_updates: int
    """Timed updates per round, about ten seconds on two cores."""
    gpu_updates: int = 50
    micro_batches: int = TrainingSettings().micro_batches
    """Micro-batches per update, as in the training of this size."""


SMALL = TransformerConfig(vocabulary_size=8_000, n_layers=3, d_model=256, d_ff=1024, n_heads=4)
SIZES = {
    "small": Size("small", SMALL, "multi30k", 4_096, 4_096, cpu_updates=8, micro_batches=1),
    "base": Size("base", BASE, "wmt14", 4_096, TrainingSettings().budget_tokens, cpu_updates=3),
    "big": Size("big", BIG, "wmt14", 4_096, TrainingSettings().budget_tokens, cpu_updates=1),
}


@dataclass(frozen=True)
class TrainingOptions:
    """How the benchmark is run; where a field is None, the size and the device decide."""

    batch_tokens: int | None = None
    device: str = "auto"
    precision: str = "auto"
    threads: int = 0
    """CPU threads; 0 means all cores."""
    rounds: int = 3
    updates: int | None = None
    with_peers: bool = True
    """Time the loops around other libraries' models."""
    with_ray: bool = False
    """Also time our loop inside a Ray Train worker."""
    with_checkpoints: bool = False
    """Also time our loop with one checkpoint per round."""
    micro_batches: int | None = None
    compiled: bool = True
    """Compile our layers where training does."""
    profile: Path | None = None
    """File for a Chrome trace of two updates of our loop after the rounds."""
    rounds_file: Path | None = None
    """File to which a line of JSON is added as each round ends."""


def measure(size: Size, options: TrainingOptions, show: Callable[[str], object] = str) -> dict[str, Any]:
    """Runs the benchmark and returns what --json prints. `show` is called with a line on what is running now.

    Raises UserError if an option does not suit the machine or the data, or if our own training fails. A peer that
    fails is reported as failed, with null for its ratio.
    """
    from pipeline.corpora.synthetic.lengths import LENGTHS, write_dataset
    from pipeline.environment import worker_environment
    from workflows.benchmarks import training_contenders

    device = find_device(options.device)
    updates = options.updates or (size.gpu_updates if device == "gpu" else size.cpu_updates)
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder, ExitStack() as stack:
        show("writing sentence pairs")
        dataset = write_dataset(Path(folder) / "dataset", LENGTHS[size.lengths], size.model.vocabulary_size)
        workload = training_contenders.TrainingWorkload(
            model=size.model,
            dataset=dataset,
            run_folder=Path(folder) / "run",
            batch_tokens=options.batch_tokens or (size.gpu_batch_tokens if device == "gpu" else size.cpu_batch_tokens),
            device=device,
            precision=options.precision,
            threads=options.threads or os.cpu_count() or 1,
            micro_batches=options.micro_batches or size.micro_batches,
            compiled=options.compiled,
        )

        def start(
            name: str,
            make: "Callable[[TrainingWorkload], TrainingContender]",
            environment: Mapping[str, str] | None = None,
        ) -> RunningContender[TrainingRates]:
            show(f"warming up {name}")
            process = ContenderProcess(make, workload, environment=environment)
            advice = "lower --batch-tokens or choose a smaller --size" if name == OURS else ""
            running = stack.enter_context(RunningContender(TrainingRates(name), [process], advice))
            running.rates.dtype = running.call("warm_up") or ""
            return running

        ours = start(OURS, training_contenders.OurLoop, worker_environment())
        matmul_rates, all_running = [], [ours]
        if options.with_peers:
            all_running += [start(name, make) for name, make in _peers(device, ours.call("bfloat16_is_faster"))]
        if options.with_checkpoints:
            all_running.append(start(SAVING, training_contenders.OurLoopWithCheckpoints, worker_environment()))
        if options.with_ray:
            from workflows.benchmarks.training_in_ray import OurLoopInRay

            all_running.append(start(IN_RAY, OurLoopInRay))
        for number in range(options.rounds):
            matmul_rates.append(ours.call("matmul_flop_s"))
            for running in all_running:
                show(f"round {number + 1} of {options.rounds}: {running.rates.name} {running.rates.dtype}")
                if done := running.call("round", updates):
                    running.rates.rounds.append(done)
                    if options.rounds_file:
                        _write_round(options.rounds_file, running.rates, matmul_rates[-1])
        profiled = None
        if options.profile:
            show("profiling")
            profiled = {"file": str(options.profile), **ours.call("profile", options.profile.absolute())}
        described = {
            "size": size.name,
            "device": device,
            "device_name": ours.call("device_name"),
            "dtype": ours.rates.dtype,
            "lengths": size.lengths,
            "vocabulary_size": size.model.vocabulary_size,
            "batch_tokens": workload.batch_tokens,
            "micro_batches": workload.micro_batches,
            "compiled": ours.call("is_compiled"),
            "threads": workload.threads,
            "rounds": options.rounds,
            "updates": updates,
        }
    result = described | figures([running.rates for running in all_running], matmul_rates, updates)
    return result | {"profile": profiled} if profiled else result


def _peers(device: str, bfloat16_is_faster: bool) -> "Iterator[tuple[str, Callable[[TrainingWorkload], PlainLoop]]]":
    """Yields the peers that are installed, in the number types that their users would choose on the device."""
    from workflows.benchmarks import training_contenders as contenders

    bfloat16_alone = device == "gpu" and bfloat16_is_faster
    yield TORCH, contenders.torch_bfloat16 if bfloat16_alone else contenders.torch_float32
    if is_installed("transformers"):
        if not bfloat16_alone:
            yield MARIAN, contenders.marian_float32
        if bfloat16_is_faster:
            yield MARIAN, contenders.marian_bfloat16


def _write_round(path: Path, rates: TrainingRates, matmul_flop_s: float) -> None:
    """Adds a line of JSON on the round that has just ended, so that a killed benchmark leaves the rounds before."""
    done = rates.rounds[-1]
    figures = {"name": rates.name, "dtype": rates.dtype, "round": len(rates.rounds), "matmul_flop_s": matmul_flop_s}
    figures |= {"seconds": done.seconds, "peak_memory_gb": done.peak_memory_gb, **asdict(done.work)}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(figures) + "\n")


def train(
    size: Annotated[str, typer.Option(help="small (3+3 layers, width 256), base or big (the paper's).")] = "small",
    vocabulary_size: Annotated[
        int | None,
        typer.Option(
            min=8,
            help=f"Pieces.  [default: {SMALL.vocabulary_size} for small, {BASE.vocabulary_size} for base and big]",
        ),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="multi30k or wmt14.  [default: multi30k for small, else wmt14]")
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Tokens per side of an update.  [default: {SIZES['base'].cpu_batch_tokens}; "
            f"base and big on a GPU: {SIZES['base'].gpu_batch_tokens}]",
        ),
    ] = None,
    micro_batches: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Parts that an update is computed in.  "
            f"[default: as in training: {', '.join(f'{one.micro_batches} for {one.name}' for one in SIZES.values())}]",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = TrainingOptions.device,
    precision: Annotated[
        str, typer.Option(help="Precision of our step: float32, bfloat16, or auto (bfloat16 where it is faster).")
    ] = TrainingOptions.precision,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: all cores.")] = TrainingOptions.threads,
    peers: Annotated[bool, typer.Option(help="Time the plain loops around other models.")] = True,
    ray: Annotated[bool, typer.Option("--ray", help="Also time our loop inside a Ray Train worker.")] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Also time our loop with one checkpoint per round.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds per loop.")] = TrainingOptions.rounds,
    updates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Updates per round.  [default: {', '.join(str(one.cpu_updates) for one in SIZES.values())} for "
            f"{', '.join(SIZES)}; {Size.gpu_updates} on a GPU]",
        ),
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile our layers on a GPU, as training does.")
    ] = TrainingOptions.compiled,
    profile: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace of two updates of our loop here; .gz packs it.")
    ] = None,
    rounds_file: Annotated[Path | None, typer.Option(help="Add a line of JSON here as each round ends.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare the training step with torch.nn.Transformer and MarianMT, in real target tokens per second."""
    chosen = SIZES[one_of("--size", size, list(SIZES))]
    if lengths:
        chosen = replace(chosen, lengths=one_of("--lengths", lengths, ("multi30k", "wmt14")))
    if vocabulary_size:
        chosen = replace(chosen, model=replace(chosen.model, vocabulary_size=vocabulary_size))
    one_of("--device", device, get_args(Device))
    one_of("--precision", precision, get_args(Precision))
    if ray and not is_installed("ray"):
        raise UserError("--ray: Ray is not installed; drop the option, or pip install 'ray[train]'")
    options = TrainingOptions(
        batch_tokens,
        device,
        precision,
        threads,
        rounds,
        updates,
        peers,
        ray,
        checkpoints,
        micro_batches,
        compiled,
        profile,
        rounds_file,
    )
    result = with_status_line(lambda show: measure(chosen, options, show))
    if as_json:
        typer.echo(json.dumps(result))
        return
    print_table(result)
    console.print(sentence(result["load"]), highlight=False, soft_wrap=True)
    if peers and not is_installed("transformers"):
        console.print("MarianMT did not take part: pip install -e '.[bench]'", markup=False)


def main() -> None:
    """Entry point of `python -m workflows.benchmarks.training`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(train)
    run_app(app, "python -m workflows.benchmarks.training")


if __name__ == "__main__":
    main()
