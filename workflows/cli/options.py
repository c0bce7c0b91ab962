"""Options shared by several commands, singly and in groups, and what --out creates.

@with_options
def main(common: Common, seeds: SeedsOption = 1) -> None: ...     # has --config ... --force, --seeds
"""

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from pipeline.errors import UserError
from pipeline.store.artifact import ArtifactT
from pipeline.store.store import Store

Returned = TypeVar("Returned")


def once(overrides: Sequence[str] | None) -> list[str]:
    """Returns changes "key=value". Raises UserError if two are of one key."""
    keys = Counter(override.partition("=")[0].strip() for override in overrides or ())
    for key, count in keys.items():
        if count > 1:
            raise UserError(f"{key} is set twice, but takes one value; set it once")
    return [*(overrides or ())]


ProfileOption = Annotated[
    str | None,
    typer.Option(help="embedded, multi30k or wmt14.  [default: from --config, else by size of --files, else embedded]"),
]
DataOption = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The profile's files, instead of downloads.")]
FilesOption = Annotated[
    list[Path] | None, typer.Option(help="TOML file that names your text. May be repeated, once per language pair.")
]
ConfigOption = Annotated[Path | None, typer.Option(help="TOML file with a profile and changes to it.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        callback=once,
        help="Change one setting, e.g. decoding.beam_size=1. May be repeated, for other settings.",
    ),
]
StoreOption = Annotated[str, typer.Option(metavar="FOLDER|URI", help="For all output: a folder, or a bucket (s3://).")]
AddressOption = Annotated[str | None, typer.Option(help="Ray cluster to use, e.g. auto.  [default: start one here]")]
DevBleuOption = Annotated[
    bool,
    typer.Option("--dev-bleu", help="Also decode the dev set with every kept checkpoint: BLEU over time in MLflow."),
]
ModelArgument = Annotated[Path, typer.Argument(help="Folder or name of a model, e.g. table2/embedded/en-de-base.")]
OutOption = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder to create.")]


@dataclass(frozen=True)
class Common:
    """The options of all experiments; each field becomes one (`with_options`)."""

    config: ConfigOption = None
    overrides: SetOption = None
    updates: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Updates of each model, for a first try; warm-up and intervals follow."),
    ] = None
    store: StoreOption = "runs"
    address: AddressOption = None
    plan: Annotated[bool, typer.Option("--plan", help="Show which stages would run and why, and exit.")] = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all stages of --plan, or all notes.")] = False
    json: Annotated[bool, typer.Option("--json", help="With --plan: print the DAG as one JSON document.")] = False
    mermaid: Annotated[bool, typer.Option("--mermaid", help="With --plan: print a Mermaid flowchart.")] = False
    until: Annotated[
        str | None,
        typer.Option(metavar="STAGE", help='Stop after the stages of this name, e.g. train or "train en-de base".'),
    ] = None
    force: Annotated[
        str | None, typer.Option(metavar="STAGE", help="Rerun the stages of this name and all that depend on them.")
    ] = None

    def __post_init__(self) -> None:
        if self.updates:
            object.__setattr__(self, "overrides", [*(self.overrides or ()), f"updates={self.updates}"])


@dataclass(frozen=True)
class TextOptions:
    """The options of the translation experiments for a text and its settings."""

    profile: ProfileOption = None
    data: DataOption = None
    files: FilesOption = None

    def given(self, common: Common) -> dict[str, Any]:
        """Returns the arguments for `load_profile`."""
        text = {"name": self.profile, "data": self.data, "files": self.files or ()}
        return {**text, "config": common.config, "overrides": common.overrides or ()}


def with_options(main: Callable[..., Returned]) -> Callable[..., Returned]:
    """Expands each dataclass parameter of a command into one option per field."""
    signature = inspect.signature(main)
    own = signature.parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in own.items() if is_dataclass(each.annotation)}
    members = {name: inspect.signature(group).parameters for name, group in groups.items()}
    parameters = [
        option.replace(kind=own[name].kind) for name in own for option in members.get(name, {name: own[name]}).values()
    ]
    expanded = signature.replace(parameters=parameters)

    @wraps(main)
    def command(*arguments: Any, **named: Any) -> Returned:
        bound = expanded.bind(*arguments, **named)
        bound.apply_defaults()
        given = dict(bound.arguments)
        for name, group in groups.items():
            given[name] = group(**{option: given.pop(option) for option in members[name]})
        return main(**given)

    command.__signature__ = expanded  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def publish_at(out: Path, task: str, build: Callable[[Path], ArtifactT], manifest: dict[str, Any]) -> None:
    """Publishes an artifact as the folder `out` of a user. Raises UserError if another command is building it."""
    store, name = Store(out.absolute().parent), str(out.absolute())
    with store.lock(name, task) as lock:
        if owner := lock.take():
            raise UserError(f"{out} is being built by {owner}; wait for it or choose another folder")
        store.publish(name, build, manifest, holds_lock=lock.is_ours)
