"""The options that several commands have in common."""

from pathlib import Path
from typing import Annotated

import typer

ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", help="embedded, multi30k or wmt14.  [default: embedded, or what --config names]"),
]
DataOption = Annotated[
    Path | None, typer.Option("--data", help="Folder with the profile's files, instead of a download.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="TOML file: a profile and what differs from it.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. decoding.beam_size=1. May be repeated."),
]
StoreOption = Annotated[Path, typer.Option("--store", help="Folder of everything made: stages, MLflow's database.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Ray cluster, e.g. auto.  [default: one on this machine]")
]
PlanOption = Annotated[
    bool, typer.Option("--plan", help="List the stages, cached or to run; forecast disk, FLOP and hours; and exit.")
]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", min=1, max=100_000, help="With --plan: forecast for so many GPUs.  [default: those here]"),
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="With --plan: forecast for this kind of GPU, e.g. h100.")
]
