"""Benchmark of a training's workers: the same updates by 1, 2, 4 and 8 of them on one machine.

    aiayn bench scale                                  # the small size
    aiayn bench scale --workers 1,2 --exchange bfloat16 --json

For each number of workers as many processes stand ready. They take turns by rounds, so that a slow minute affects all
numbers alike. Printed are medians over the rounds of an update's parts, means over the workers: computing, waiting for
the last worker, exchanging gradients. Workers that share a processor wait for it while they compute; there the
processor time of all workers together tells what each further one costs.

It needs neither Ray nor MLflow.
"""

import json
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer
from rich.table import Table

from pipeline.errors import UserError
from pipeline.settings import Device, Precision, TrainingSettings
from workflows.benchmarks.load import sentence
from workflows.benchmarks.processes import ContenderError, ContenderProcess
from workflows.benchmarks.rounds import find_device, with_status_line
from workflows.benchmarks.training import SIZES, Size
from workflows.console.command import console
from workflows.console.options import one_of

if TYPE_CHECKING:  # the module imports torch
    from workflows.benchmarks.scaling.workers import Share

EXCHANGED = ("float32", "bfloat16")
TYPE_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class ScaleOptions:
    """How the benchmark is run; where a field is None, the size and the device decide."""

    workers: tuple[int, ...] = (1, 2, 4, 8)
    batch_tokens: int | None = None
    micro_batches: int = TrainingSettings().micro_batches
    device: str = "auto"
    precision: str = "auto"
    exchange: str = "float32"
    threads: int = 1
    """CPU threads of each worker."""
    rounds: int = 3
    updates: int | None = None


def measure(size: Size, options: ScaleOptions, show: Callable[[str], object] = str) -> dict[str, Any]:
    """Runs the benchmark and returns what --json prints. `show` is called with a line on what is running now.

    Raises UserError if an option does not suit the machine, or if a worker fails.
    """
    from pipeline.corpora.synthetic.lengths import LENGTHS, write_dataset
    from pipeline.environment import worker_environment
    from workflows.benchmarks.scaling.workers import TimedWorker
    from workflows.benchmarks.training_contenders import TrainingWorkload

    device = find_device(options.device)
    _check(options, device)
    updates = options.updates or (size.gpu_updates if device == "gpu" else size.cpu_updates)
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder, ExitStack() as stack:
        show("writing sentence pairs")
        workload = TrainingWorkload(
            model=size.model,
            dataset=write_dataset(Path(folder) / "dataset", LENGTHS[size.lengths], size.model.vocabulary_size),
            run_folder=Path(folder) / "run",
            batch_tokens=options.batch_tokens or (size.gpu_batch_tokens if device == "gpu" else size.cpu_batch_tokens),
            device=device,
            precision=options.precision,
            threads=options.threads,
            micro_batches=options.micro_batches,
            exchange=cast(Literal["float32", "bfloat16"], options.exchange),
        )
        groups: dict[int, list[ContenderProcess]] = {}
        rounds: dict[int, list[list[Share]]] = {}
        for n in options.workers:
            show(f"warming up {n} workers")
            port, environment = _free_port(), worker_environment()
            made = (ContenderProcess(TimedWorker, workload, i, n, port, environment=environment) for i in range(n))
            groups[n], rounds[n] = [stack.enter_context(process) for process in made], []
            (dtype, *_) = _asked(groups[n], "warm_up")
        for number in range(options.rounds):
            for n, processes in groups.items():
                show(f"round {number + 1} of {options.rounds}: {n} workers")
                rounds[n].append(_asked(processes, "share", updates))
        parameters, name = (groups[options.workers[0]][0].call(what) for what in ("parameters", "device_name"))
    return {
        "size": size.name,
        "device": device,
        "device_name": name,
        "dtype": dtype,
        "lengths": size.lengths,
        "batch_tokens": workload.batch_tokens,
        "micro_batches": workload.micro_batches,
        "threads": workload.threads,
        "rounds": options.rounds,
        "updates": updates,
        "exchange": options.exchange,
        "exchanged_bytes": parameters * TYPE_BYTES[options.exchange],
        "layouts": [_layout(n, rounds[n], updates) for n in options.workers],
    }


def _check(options: ScaleOptions, device: str) -> None:
    most = max(options.workers)
    if most > options.micro_batches:
        raise UserError(
            f"--workers {most}: an update has only {options.micro_batches} micro-batches; raise --micro-batches"
        )
    if device == "gpu":
        import torch

        if most > torch.cuda.device_count():
            raise UserError(f"--workers {most}: torch finds {torch.cuda.device_count()} GPUs here; lower it")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _asked(processes: Sequence[ContenderProcess], method: str, *arguments: Any) -> list[Any]:
    """Calls a method of all workers of a group at once. Raises UserError if one of them fails."""
    for process in processes:
        process.send(method, *arguments)
    try:
        return [process.receive() for process in processes]
    except ContenderError as error:
        raise UserError(f"one of {len(processes)} workers: {error}; lower --workers or --batch-tokens") from None


def _layout(n: int, rounds: "Sequence[Sequence[Share]]", updates: int) -> dict[str, Any]:
    """Returns the figures of `n` workers: seconds an update, and target tokens per second."""

    def an_update(figure: "Callable[[Sequence[Share]], float]") -> float:
        return median(figure(shares) for shares in rounds) / updates

    return {
        "workers": n,
        "update_s": an_update(lambda shares: max(share.seconds for share in shares)),
        "computing_s": an_update(
            lambda shares: fmean(share.seconds - share.waiting_s - share.exchanging_s for share in shares)
        ),
        "waiting_s": an_update(lambda shares: fmean(share.waiting_s for share in shares)),
        "exchanging_s": an_update(lambda shares: fmean(share.exchanging_s for share in shares)),
        "processor_s": an_update(lambda shares: sum(share.processor_s for share in shares)),
        "tokens_s": median(shares[0].target_tokens / max(share.seconds for share in shares) for shares in rounds),
    }


def scale(
    size: Annotated[str, typer.Option(help="small (3+3 layers, width 256), base or big (the paper's).")] = "small",
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas.")] = "1,2,4,8",
    vocabulary_size: Annotated[int | None, typer.Option(min=8, help="Pieces.  [default: the size's]")] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens per side of an update.  [default: as in `bench train`]")
    ] = None,
    micro_batches: Annotated[
        int, typer.Option(min=1, help="Parts that an update is dealt out in.")
    ] = ScaleOptions.micro_batches,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = ScaleOptions.device,
    precision: Annotated[str, typer.Option(help="float32, bfloat16, or auto.")] = ScaleOptions.precision,
    exchange: Annotated[
        str, typer.Option(help="Number type in which gradients are added up: float32 or bfloat16.")
    ] = ScaleOptions.exchange,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of each worker.")] = ScaleOptions.threads,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = ScaleOptions.rounds,
    updates: Annotated[int | None, typer.Option(min=1, help="Updates per round.  [default: the size's]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time the training step by several workers: computing, waiting, exchanging gradients."""
    chosen = SIZES[one_of("--size", size, list(SIZES))]
    if vocabulary_size:
        chosen = replace(chosen, model=replace(chosen.model, vocabulary_size=vocabulary_size))
    one_of("--device", device, get_args(Device))
    one_of("--precision", precision, get_args(Precision))
    one_of("--exchange", exchange, EXCHANGED)
    options = ScaleOptions(
        _numbers(workers), batch_tokens, micro_batches, device, precision, exchange, threads, rounds, updates
    )
    result = with_status_line(lambda show: measure(chosen, options, show))
    if as_json:
        typer.echo(json.dumps(result))
        return
    print_table(result)


def _numbers(text: str) -> tuple[int, ...]:
    found = tuple(int(part) if part.strip().isdecimal() else 0 for part in text.split(","))
    if min(found) < 1 or len(set(found)) < len(found):
        raise UserError(f"--workers {text}: write different numbers from 1 on, such as 1,2,4")
    return found


def print_table(result: dict[str, Any]) -> None:
    """Prints the result of `measure` for people to read."""
    table = Table(
        title=f"{result['size']}, {result['batch_tokens']} tokens per update in {result['micro_batches']} "
        f"micro-batches, {result['dtype']}, {result['device_name']}; "
        f"{result['exchanged_bytes'] / 1e6:.1f} MB exchanged in {result['exchange']}"
    )
    headings = ("workers", "s/update", "computing", "waiting", "exchanging", "processor s", "target tokens/s", "times")
    for heading in headings:
        table.add_column(heading, justify="right")
    first, *_ = result["layouts"]
    for layout in result["layouts"]:
        parts = ("update_s", "computing_s", "waiting_s", "exchanging_s", "processor_s")
        rates = f"{layout['tokens_s']:.0f}", f"{layout['tokens_s'] / first['tokens_s']:.2f}"
        table.add_row(str(layout["workers"]), *(f"{layout[part]:.3f}" for part in parts), *rates)
    console.print(table)
    last, processors = result["layouts"][-1], os.cpu_count() or 1
    if result["device"] == "cpu" and last["workers"] * result["threads"] > processors:
        console.print(
            f"{last['workers']} workers of {result['threads']} threads share {processors} processors, so computing and "
            "waiting include waiting for a processor; what a worker costs is in the processor time",
            highlight=False,
            soft_wrap=True,
        )
    if (more := last["workers"] - first["workers"]) > 0:
        overhead_s = (last["processor_s"] - first["processor_s"]) / more
        console.print(
            f"each worker beyond {first['workers']} adds {overhead_s:.3f} s of a processor to an update "
            f"({overhead_s / first['processor_s']:.1%})",
            highlight=False,
            soft_wrap=True,
        )
    console.print(sentence(result["load"]), highlight=False, soft_wrap=True)
