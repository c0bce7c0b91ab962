"""Benchmark of the training step: ours, torch.nn.Transformer and MarianMT, in one run, on the same batches.

    python -m workflows.benchmarks.training                       # the same as `aiayn bench train`
    python -m workflows.benchmarks.training --size base --json

Each contender (`training_contenders`) lives in a process of its own and waits while another computes. After a warm-up
come rounds: the next few updates of the plan by ours, the same updates by the next contender, and so on; so a slow
minute of the machine is shared out, and the spread over the rounds shows it. A rate is real (not padding) target tokens
over seconds in one round, and the rates printed are medians over the rounds, a ratio the quotient of two of them.

The roofline: floating-point operations of the matrix products that the real tokens need (`model.flops`) over the time
that they would take at the rate of a large square product in the same type, measured before each round. Not covered:
more than one device, and the start of a training (reading weights, the first batch).

Needs neither Ray nor MLflow. MarianMT takes part where `transformers` is installed: pip install -e '.[bench]'.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from model.config import BASE, BIG, TransformerConfig
from pipeline.errors import UserError
from workflows.benchmarks.processes import ContenderProcess, Running
from workflows.benchmarks.rounds import find_device, is_installed, one_of, watched
from workflows.benchmarks.training_rates import IN_RAY, MARIAN, OURS, SAVING, TORCH, Rates, figures, print_table
from workflows.console.command import console, run_app

if TYPE_CHECKING:  # it imports torch
    from workflows.benchmarks.training_contenders import Contender, Workload


@dataclass(frozen=True)
class Size:
    """What is trained in the benchmark."""

    name: str
    model: TransformerConfig
    lengths: str
    """A name of `pipeline.corpora.synthetic.lengths.LENGTHS`."""
    cpu_batch_tokens: int
    gpu_batch_tokens: int
    cpu_updates: int
    """Timed updates a round: some ten seconds on two cores."""
    gpu_updates: int = 50


SMALL = TransformerConfig(vocabulary_size=8_000, n_layers=3, d_model=256, d_ff=1024, n_heads=4)
SIZES = {
    "small": Size("small", SMALL, "multi30k", 4_096, 4_096, cpu_updates=8),
    "base": Size("base", BASE, "wmt14", 4_096, 25_000, cpu_updates=3),
    "big": Size("big", BIG, "wmt14", 4_096, 25_000, cpu_updates=1),
}


@dataclass(frozen=True)
class Options:
    """How it is measured; None: as the size and the device say."""

    batch_tokens: int | None = None
    device: str = "auto"
    precision: str = "auto"
    threads: int = 0
    """0: all cores."""
    rounds: int = 3
    updates: int | None = None
    with_peers: bool = True
    """Whether the other loops are timed at all."""
    with_ray: bool = False
    """Whether our loop is timed inside a worker of Ray Train too."""
    with_checkpoints: bool = False
    """Whether our loop is timed with a checkpoint a round too."""


def measure(size: Size, options: Options, show: Callable[[str], object] = str) -> dict[str, Any]:
    """Runs the benchmark; gives what --json prints. `show` takes a line on what is running now.

    Raises UserError where an option does not fit the machine or the data, or where our own training fails. A peer that
    fails is reported as such, with null for its ratio.
    """
    from pipeline.corpora.synthetic.lengths import LENGTHS, write_dataset
    from pipeline.hardware import KEEP_MEMORY
    from workflows.benchmarks import training_contenders

    device = find_device(options.device)
    updates = options.updates or (size.gpu_updates if device == "gpu" else size.cpu_updates)
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder, ExitStack() as stack:
        show("writing sentence pairs")
        dataset = write_dataset(Path(folder) / "dataset", LENGTHS[size.lengths], size.model.vocabulary_size)
        workload = training_contenders.Workload(
            model=size.model,
            dataset=dataset,
            run_folder=Path(folder) / "run",
            batch_tokens=options.batch_tokens or (size.gpu_batch_tokens if device == "gpu" else size.cpu_batch_tokens),
            device=device,
            precision=options.precision,
            threads=options.threads or os.cpu_count() or 1,
        )

        def start(
            name: str, make: "Callable[[Workload], Contender]", environment: Mapping[str, str] | None = None
        ) -> Running[Rates]:
            show(f"warming up {name}")
            process = ContenderProcess(make, workload, environment=environment)
            mend = "lower --batch-tokens or take a smaller --size" if name == OURS else ""
            running = stack.enter_context(Running(Rates(name), [process], mend))
            running.rates.dtype = running.call("warm_up") or ""
            return running

        ours = start(OURS, training_contenders.Ours, KEEP_MEMORY)
        matmul_rates, all_running = [], [ours]
        if options.with_peers:
            all_running.append(start(TORCH, training_contenders.torch_float32))
        if options.with_peers and is_installed("transformers"):
            all_running.append(start(MARIAN, training_contenders.marian_float32))
            if ours.call("bfloat16_is_native"):
                all_running.append(start(MARIAN, training_contenders.marian_bfloat16))
        if options.with_checkpoints:
            all_running.append(start(SAVING, training_contenders.OursSaving, KEEP_MEMORY))
        if options.with_ray:
            from workflows.benchmarks.training_in_ray import OursInRay

            all_running.append(start(IN_RAY, OursInRay))
        for number in range(options.rounds):
            matmul_rates.append(ours.call("matmul_flop_s"))
            for running in all_running:
                show(f"round {number + 1} of {options.rounds}: {running.rates.name} {running.rates.dtype}")
                if done := running.call("round", updates):
                    running.rates.rounds.append(done)
        described = {
            "size": size.name,
            "device": device,
            "device_name": ours.call("device_name"),
            "dtype": ours.rates.dtype,
            "lengths": size.lengths,
            "vocabulary_size": size.model.vocabulary_size,
            "batch_tokens": workload.batch_tokens,
            "threads": workload.threads,
            "rounds": options.rounds,
            "updates": updates,
        }
    return described | figures([running.rates for running in all_running], matmul_rates, updates)


def train(
    size: Annotated[str, typer.Option(help="small (3+3 layers, 256), base or big (the paper's).")] = "small",
    vocabulary_size: Annotated[
        int | None, typer.Option(min=8, help="Pieces.  [default: 8000 for small, 37000 for base and big]")
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="multi30k or wmt14.  [default: multi30k for small, else wmt14]")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens a side of a batch.  [default: 4096; base and big on a GPU: 25000]")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="Of our step: float32, bfloat16, or auto (bfloat16 where it is native).")
    ] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: all cores.")] = 0,
    peers: Annotated[bool, typer.Option(help="Time the plain loops around other models.")] = True,
    ray: Annotated[bool, typer.Option("--ray", help="Time our loop inside a worker of Ray Train too.")] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Time our loop with a checkpoint a round too.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that each loop is timed in.")] = 3,
    updates: Annotated[
        int | None, typer.Option(min=1, help="Updates a round.  [default: 8, 3, 1 for small, base, big; 50 on a GPU]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The training step beside torch.nn.Transformer and MarianMT, in real target tokens a second."""
    chosen = SIZES[one_of("--size", size, list(SIZES))]
    if lengths:
        chosen = replace(chosen, lengths=one_of("--lengths", lengths, ("multi30k", "wmt14")))
    if vocabulary_size:
        chosen = replace(chosen, model=replace(chosen.model, vocabulary_size=vocabulary_size))
    one_of("--device", device, ("auto", "cpu", "gpu"))
    one_of("--precision", precision, ("auto", "float32", "bfloat16"))
    if ray and not is_installed("ray"):
        raise UserError("--ray: Ray is not installed; leave the option out, or pip install 'ray[train]'")
    options = Options(batch_tokens, device, precision, threads, rounds, updates, peers, ray, checkpoints)
    result = watched(lambda show: measure(chosen, options, show))
    if as_json:
        typer.echo(json.dumps(result))
        return
    print_table(result)
    if peers and not is_installed("transformers"):
        console.print("MarianMT did not take part: pip install -e '.[bench]'", markup=False)


def main() -> None:
    """Entry point of `python -m workflows.benchmarks.training`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(train)
    run_app(app, "python -m workflows.benchmarks.training")


if __name__ == "__main__":
    main()
