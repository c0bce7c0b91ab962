"""`aiayn forecast TABLE`: the disk, FLOP and hours of the runs that a table lacks, on this machine or on named GPUs."""

import json
from dataclasses import dataclass
from typing import Annotated

import typer

from pipeline.errors import UserError
from workflows.cli.console import console, say
from workflows.cli.reproduce import Asked
from workflows.engine.dag import Imported
from workflows.engine.plan import to_run
from workflows.experiment import Reproduction

FORECAST = "Forecast the disk, FLOP and hours of missing runs. Those that a table lacks by its options; none is run."
WITHOUT_EFFECT = "plan", "verbose", "mermaid", "until", "force", "address"
forecast = Imported("workflows.forecast:forecast")


@dataclass(frozen=True)
class Hardware:
    """The options beside the table's."""

    gpus: Annotated[int | None, typer.Option(min=1, max=100_000, help="How many GPUs.  [default: all]")] = None
    gpu: Annotated[str | None, typer.Option(help="GPU model, e.g. h100.  [default: this machine's]")] = None


def print_forecast(experiment: Reproduction, request: Asked, hardware: Hardware) -> None:
    """Prints the forecast. Raises UserError for options without effect, and for an experiment that trains nothing."""
    options, store = request.options, request.store
    for name in WITHOUT_EFFECT:
        if getattr(options, name):
            raise UserError(f"--{name} does not affect a forecast; drop it")
    if not experiment.models:
        raise UserError(f"{experiment.name} trains nothing; aiayn {experiment.name} --plan shows its stages")
    missing = {step.fingerprint for step in to_run([experiment.tabulate({})], store)}
    runs = [model for model in experiment.models.values() if model.training.fingerprint in missing]
    found = forecast(request.profile, runs, hardware.gpus, hardware.gpu, store)
    if options.json:
        print(json.dumps(found and found[1], indent=2))
    elif found:
        say(request.profile.in_force(request.overrides))
        console.print(found[0])
    else:
        say(f"{store} has all runs of this table")
