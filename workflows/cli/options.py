"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", help="embedded, multi30k or wmt14.  [default: the one in --config; --files by size; else embedded]"
    ),
]
DataOption = Annotated[
    Path | None, typer.Option("--data", help="Folder that has the profile's files, to avoid downloading them.")
]
FilesOption = Annotated[
    list[Path] | None,
    typer.Option("--files", help="TOML file that names your own text; may be repeated, once per language pair."),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="TOML file with a profile and changes to it.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. decoding.beam_size=1. May be repeated."),
]
StoreOption = Annotated[
    str,
    typer.Option("--store", metavar="FOLDER|URI", help="For all output: a folder, or a bucket (s3://, gs://, az://)."),
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Ray cluster to use, e.g. auto.  [default: start one on this machine]")
]
PlanOption = Annotated[
    bool, typer.Option("--plan", help="List cached stages and stages to run, forecast disk, FLOP and hours, and exit.")
]
DevBleuOption = Annotated[
    bool,
    typer.Option("--dev-bleu", help="Also decode the dev set with every kept checkpoint: BLEU over time in MLflow."),
]
BatchTokensOption = Annotated[
    int, typer.Option("--batch-tokens", min=0, help="Source tokens decoded at once; 0: as suits the device.")
]
DtypeOption = Annotated[
    str, typer.Option("--dtype", help="float32, bfloat16, auto (bfloat16 if faster), or int8 (CTranslate2 only).")
]
ThreadsOption = Annotated[int, typer.Option("--threads", min=0, help="CPU threads; 0: all.")]
GpusOption = Annotated[
    int | None,
    typer.Option(
        "--gpus", min=1, max=100_000, help="With --plan: number of GPUs in the forecast.  [default: this machine's]"
    ),
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="With --plan: kind of GPU in the forecast, e.g. h100.")
]
ModelArgument = Annotated[Path, typer.Argument(help="Folder or name of a model, e.g. table2/embedded/en-de-base.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder to create.")]
