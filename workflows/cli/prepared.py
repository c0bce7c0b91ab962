"""The settings behind a folder: those of prepared text, for `aiayn train`, and a model's search, for `aiayn translate`.

`aiayn prepare` writes `profile.json` beside the text; an experiment has them in its `run.json`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.artifacts import Hypotheses
from pipeline.environment import usable_cpus
from pipeline.errors import UserError
from pipeline.settings import DecodingSettings
from pipeline.store.hashes import STORE
from pipeline.store.store import Store
from workflows.names import store_beside
from workflows.profiles.profile import Profile
from workflows.runs import RUN, Run, runs_in, write_atomically

PROFILE = "profile.json"
OWN = "[default: its table's, or the paper's]"


@dataclass(frozen=True)
class SearchOptions:
    """The options for the search of a trained model; what is None is as in the model's table."""

    beam_size: Annotated[int | None, typer.Option(min=1, help=f"Hypotheses kept a step; 1: greedy.  {OWN}")] = None
    length_penalty: Annotated[float | None, typer.Option(min=0, help=f"α of ((5 + |y|) / 6)^α.  {OWN}")] = None
    max_extra_tokens: Annotated[int | None, typer.Option(min=1, help=f"Most tokens beyond the input's.  {OWN}")] = None
    batch_tokens: Annotated[int, typer.Option(min=0, help="Source tokens per decoding batch; 0: by device.")] = (
        DecodingSettings().batch_tokens
    )
    dtype: Annotated[str | None, typer.Option(help=f"float32, bfloat16, or auto: the faster.  {OWN}")] = None
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: all.")] = 0

    @property
    def changes(self) -> dict[str, Any]:
        """The settings that the options change, by name."""
        named = {name: value for name, value in vars(self).items() if value is not None}
        return {**named, "threads": self.threads or usable_cpus()}


def record(folder: Path, profile: Profile) -> None:
    """Records in `folder` the settings of its text."""
    write_atomically(folder / PROFILE, f"{json.dumps(profile.recorded(), indent=2)}\n".encode())


def recorded(named: Path, dataset: Path) -> Profile | None:
    """Returns the settings recorded for the folder `dataset`, which the user named `named`.

    The record is `aiayn prepare`'s, or that of the run in the name, or, for a folder in a store, that of the last run
    that uses it. Returns None without a record. Raises UserError if the record cannot be read.
    """
    runs = [(run.folder / RUN, run.record.settings) for run in runs_with(named, dataset) if run.record.settings]
    for path, settings in ((dataset.parent / PROFILE, {}), *runs):
        if path.is_file():
            try:
                return Profile(**{"corpora": {}, **(settings or json.loads(path.read_text(encoding="utf-8")))})
            except (ValueError, TypeError):  # pydantic's ValidationError is a ValueError
                message = f"this version cannot read the settings in {path}, of another version; choose a --profile"
                raise UserError(message) from None
    return None


def searched(named: Path, model: Path) -> DecodingSettings:
    """Returns the settings with the search that a run (as in `recorded`) scored a translator by, or the paper's."""
    settings = DecodingSettings()
    for run in runs_with(named, model):
        artifacts = run.record.artifacts
        label = next(label for label, name in artifacts.items() if name == model.name)
        decoded = artifacts.get(label.replace("average", "decode", 1), "unknown")  # in records of before
        if (store := store_beside(model, Store(model))).find(decoded):
            return settings.searching_like(Hypotheses(store.fetch(decoded, records=True)).load().settings)
    return settings


def runs_with(named: Path, artifact: Path) -> list[Run]:
    """Returns the runs that use an artifact: first those on the path `named`, then the last ones."""
    if artifact.parent.name != STORE:
        return []
    runs = runs_in(Store(artifact.parent.parent))
    of_artifact = [run for run in runs if artifact.name in run.record.artifacts.values()]
    return sorted(of_artifact, key=lambda run: (f"/{run.name}/" in f"{named.absolute()}/", run.time), reverse=True)
