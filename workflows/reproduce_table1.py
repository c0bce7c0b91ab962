"""Table 1 of the paper (§4): what five layer types cost over length n and width d, measured beside the paper's O(·).

python -m workflows.reproduce_table1                                      # minutes on two cores; on a GPU where one is
python -m workflows.reproduce_table1 --set layers.window=64               # another r of restricted self-attention
python -m workflows.reproduce_table1 --plan                               # what is cached, what is to run
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from pipeline.complexity.figures import CountsArtifact, MeasurementsArtifact
from pipeline.errors import UserError
from workflows.cli import options
from workflows.cli.console import help_text, run_app
from workflows.engine.dag import Imported, Stage, Step
from workflows.experiment import Reproduction, reproduce, requested
from workflows.profiles.complexity import load_complexity_profile
from workflows.tables.table1 import Table1Artifact

COUNT = Stage("complexity_counts.count", Imported("pipeline.complexity.count:count"), CountsArtifact)
MEASURE = Stage("complexity.measure", Imported("pipeline.complexity.measure:measure"), MeasurementsArtifact, gpus=1)
TABULATE = Stage(
    "tabulating.tabulate_layers",
    Imported("workflows.reports.table1:tabulate"),
    Table1Artifact,
    follows_source=True,
)

ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", help="cpu or gpu.  [default: the one in --config, or gpu where there is one]"),
]
PlanOption = Annotated[bool, typer.Option("--plan", help="List cached stages and stages to run, and exit.")]


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    profile: ProfileOption = None,
    config: options.ConfigOption = None,
    overrides: options.SetOption = None,
    store: options.StoreOption = "runs",
    address: options.AddressOption = None,
    plan: PlanOption = False,
) -> None:
    """Counts and measures what is not in the store, prints the table."""
    chosen = load_complexity_profile(profile, config=config, overrides=overrides or [])
    request = requested("table1", chosen, config, overrides, store, address, plan)
    threads, available = chosen.timing.threads, len(os.sched_getaffinity(0))
    if address is None and threads > available:
        raise UserError(f"timing.threads is {threads}, but this process may use {available} CPUs")
    counted = COUNT("count operations", chosen.layers, chosen.sweep, chosen.paths)
    # On a shared cluster no other work gets these CPUs; on a cluster of one's own there is no other.
    exclusive = replace(MEASURE, cpus=max(1, threads), gpus=0 if chosen.timing.device == "cpu" else MEASURE.gpus)
    measured = exclusive("measure times", counted, chosen.layers, chosen.sweep, chosen.timing)

    def tabulate(_failures: Mapping[str, str]) -> Step[Table1Artifact]:
        return TABULATE("table 1", counted, measured, request.command)

    settings = chosen.model_dump(mode="json")
    experiment = Reproduction(
        name="table1",
        params={"profile": settings.pop("name"), **settings},
        models={},
        reports={},
        tabulate=tabulate,
    )
    reproduce(experiment, request)


if __name__ == "__main__":
    run_app(app, "python -m workflows.reproduce_table1")
