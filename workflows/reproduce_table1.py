"""Table 1 of the paper (§4): the cost of five layer types over length n and width d, measured beside the paper's O(·).

python -m workflows.reproduce_table1                         # minutes; on a GPU if present
python -m workflows.reproduce_table1 --set layers.window=64  # r of restricted attention
python -m workflows.reproduce_table1 --plan                  # what would run, and why
"""

from dataclasses import replace
from typing import Annotated

import typer

from pipeline.complexity.records import CountsArtifact, MeasurementsArtifact
from pipeline.errors import UserError
from workflows.cli import options
from workflows.cli.console import run_app
from workflows.cli.reproduce import Asked, app_of, requested
from workflows.command_line import CommandLine
from workflows.engine.dag import Imported, Stage
from workflows.experiment import Reproduction
from workflows.profiles.complexity import ComplexityProfile, load_complexity_profile
from workflows.tables.table1 import Table1Artifact, tabulate

COUNT = Stage("complexity_counts.count", Imported("pipeline.complexity.count:count"), CountsArtifact)
MEASURE = Stage("complexity.measure", Imported("pipeline.complexity.measure:measure"), MeasurementsArtifact, 3, gpus=1)
TABULATE = Stage("tabulating.tabulate_layers", tabulate, Table1Artifact, follows_source=True)

ProfileOption = Annotated[str | None, typer.Option(help="cpu or gpu.  [default: from --config, else gpu if present]")]


def reproduction(profile: ComplexityProfile, command: CommandLine) -> Reproduction:
    """Returns the experiment: counts, then times, then the table."""
    counts = COUNT("count operations", profile.layers, profile.sweep)
    timing = profile.timing
    # Reserves the CPUs or GPU that it measures on: on a shared cluster no other work gets them.
    measure = replace(MEASURE, cpus=max(1, timing.threads), gpus=0 if timing.device == "cpu" else MEASURE.gpus)
    measured = measure("measure times", counts, profile.layers, profile.sweep, timing)
    settings = profile.model_dump(mode="json")
    return Reproduction(
        name="table1",
        params={"profile": settings.pop("name"), **settings},
        models={},
        reports={},
        tabulate=lambda _failures: TABULATE("table 1", counts, measured, command),
    )


@options.with_options
def main(common: options.Common, profile: ProfileOption = None) -> tuple[Reproduction, Asked]:
    """Returns the experiment and its request."""
    if common.updates:
        raise UserError("--updates does not affect Table 1, which trains no model; drop it")
    chosen = load_complexity_profile(profile, config=common.config, overrides=common.overrides or [])
    request = requested("table1", chosen, common)
    return reproduction(chosen, request.command), request


if __name__ == "__main__":
    run_app(app_of("workflows.reproduce_table1"), "python -m workflows.reproduce_table1")
