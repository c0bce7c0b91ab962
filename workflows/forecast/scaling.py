"""Forecasts an update of the paper's models on more and more GPUs, and what adding up their gradients takes.

    python -m workflows.forecast.scaling --gpu h100
    python -m workflows.forecast.scaling --gpu a100 --model big --node-gb-s 200 --network-gb-s 12.5 --exchange bfloat16

An update is `training.budget_tokens` in as many micro-batches as `training.micro_batches` says; a GPU computes whole
micro-batches. Three plans are compared where there are more GPUs than the paper's eight: to leave the others idle, to
cut the same update finer, and to make updates larger, which is another experiment. The exchange is an all-reduce by
rings, first within the nodes, then between them. It begins when the last micro-batch is done, as in training; what it
would take if it ran beside the backward pass is the longer of the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import typer
from rich.table import Table

from model.parameters import count
from pipeline.settings import TrainingSettings
from workflows import paper
from workflows.console.command import console, run_app
from workflows.console.options import one_of
from workflows.forecast.estimate import update_flop
from workflows.forecast.hardware import GPU_POINTS, Hardware, find
from workflows.profiles import WMT14

COUNTS = (1, 2, 4, 8, 16, 32, 64)
GPUS_IN_NODE = 8
TYPE_BYTES = {"float32": 4, "bfloat16": 2}
BACKWARD = 2 / 3
"""Share of the computing in which gradients come into being, beside which they could be sent."""
Plan = Literal["as printed", "cut finer", "larger updates"]


@dataclass(frozen=True)
class Links:
    """What connects GPUs: bytes per second that an all-reduce gets through them."""

    node_bytes_s: float
    """Between two GPUs of a node."""
    network_bytes_s: float
    """Out of a node, by all of its GPUs together."""
    gpus_in_node: int = GPUS_IN_NODE

    def exchange_s(self, n_gpus: int, n_bytes: float) -> float:
        """Returns the time of an all-reduce of `n_bytes` over `n_gpus`: 2 (n - 1) / n of them cross each link."""
        in_node, nodes = min(n_gpus, self.gpus_in_node), -(-n_gpus // self.gpus_in_node)
        within = 2 * (in_node - 1) / in_node * n_bytes / self.node_bytes_s
        return within + 2 * (nodes - 1) / nodes * n_bytes / self.network_bytes_s


@dataclass(frozen=True)
class Step:
    """An update on some GPUs."""

    plan: Plan
    n_gpus: int
    used: int
    """GPUs that have something to compute."""
    gpu_tokens: int
    """Tokens on either side that one GPU gets of an update."""
    update_tokens: int
    computing_s: float
    exchanging_s: float

    @property
    def seconds(self) -> float:
        """The whole update."""
        return self.computing_s + self.exchanging_s

    @property
    def overlapped_s(self) -> float:
        """The whole update if the exchange ran beside the backward pass."""
        return self.computing_s + max(0.0, self.exchanging_s - BACKWARD * self.computing_s)


def steps(training: TrainingSettings, lengths: str, gpu: Hardware, links: Links) -> Iterator[Step]:
    """Yields each plan for each number of GPUs; beyond `training.micro_batches` of them there are three."""
    for n_gpus in COUNTS:
        yield _step("as printed", training, lengths, gpu, links, n_gpus)
        if n_gpus > training.micro_batches:
            finer = training.model_copy(update={"micro_batches": n_gpus})
            larger = finer.model_copy(
                update={"budget_tokens": training.budget_tokens * n_gpus // training.micro_batches}
            )
            yield _step("cut finer", finer, lengths, gpu, links, n_gpus)
            yield _step("larger updates", larger, lengths, gpu, links, n_gpus)


def _step(plan: Plan, training: TrainingSettings, lengths: str, gpu: Hardware, links: Links, n_gpus: int) -> Step:
    used = min(n_gpus, training.micro_batches)
    share = -(-training.micro_batches // used) / training.micro_batches
    gpu_tokens = round(training.budget_tokens * share)
    _, flop_s = gpu.flop_s(training.precision)
    computing_s = update_flop(training, lengths) * share / (flop_s * gpu.fraction(training.model.d_model, gpu_tokens))
    n_bytes = TYPE_BYTES[training.exchange] * count(training.model)
    return Step(plan, n_gpus, used, gpu_tokens, training.budget_tokens, computing_s, links.exchange_s(used, n_bytes))


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def scaling(
    gpu: Annotated[str, typer.Option(help="A GPU that --plan knows.")] = "h100",
    model: Annotated[str, typer.Option(help="base or big, EN-DE.")] = "base",
    exchange: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    node_gb_s: Annotated[float, typer.Option(min=0.01, help="GB/s between GPUs of a node.")] = 300.0,
    network_gb_s: Annotated[float, typer.Option(min=0.01, help="GB/s out of a node; 12.5 is 100 Gbit/s.")] = 12.5,
) -> None:
    """Forecast an update of the paper's model on 1 to 64 GPUs."""
    one_of("--model", model, paper.MODELS)
    one_of("--exchange", exchange, list(TYPE_BYTES))
    recipe = WMT14.for_pair("en-de").recipes[model].training.model_copy(update={"exchange": exchange})
    hardware = find(1, gpu)
    links = Links(node_gb_s * 1e9, network_gb_s * 1e9)
    table = Table(
        title=f"{model}, {hardware.name}, {TYPE_BYTES[exchange] * count(recipe.model) / 1e6:.0f} MB exchanged in "
        f"{exchange}: ms an update"
    )
    table.add_column("GPUs", justify="right")
    table.add_column("plan")
    for heading in ("tokens", "a GPU", "computing", "exchange", "together", "overlapped", "tokens/s", "times"):
        table.add_column(heading, justify="right")
    alone: Step | None = None
    for step in steps(recipe, "wmt14", hardware, links):
        alone = alone or step
        rate, rate_alone = (one.update_tokens / one.seconds for one in (step, alone))
        table.add_row(
            str(step.n_gpus),
            step.plan if step.used == step.n_gpus else f"{step.plan}: {step.used} work",
            f"{step.update_tokens:,}",
            f"{step.gpu_tokens:,}",
            *(f"{1e3 * s:.1f}" for s in (step.computing_s, step.exchanging_s, step.seconds, step.overlapped_s)),
            f"{rate / 1e6:.2f} M",
            f"{rate / rate_alone:.1f}",
        )
    console.print(table)
    points = "from measured points" if GPU_POINTS else "a target, not measured, and the same for small updates"
    console.print(
        f"{hardware.fraction(recipe.model.d_model, recipe.budget_tokens):.0%} of the GPU's published rate is assumed "
        f"({points}); {node_gb_s:g} GB/s within a node of {GPUS_IN_NODE}, {network_gb_s:g} GB/s between nodes",
        highlight=False,
        soft_wrap=True,
    )


def main() -> None:
    """Entry point of `python -m workflows.forecast.scaling`."""
    run_app(app, "python -m workflows.forecast.scaling")


if __name__ == "__main__":
    main()
