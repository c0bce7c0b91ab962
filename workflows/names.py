"""Finds artifacts by readable names: `table2/embedded/en-de-base` instead of `runs/store/averaging-0123...`.

named_folder("average", Path("table2/embedded/en-de-base"), "model.safetensors")    # for folders in options
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.artifacts import METRICS
from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.hashes import STORE
from pipeline.store.store import Store
from workflows.runs import BUCKET, DEFAULT_ROOT, MODEL_STAGES, NEWEST, RUN, Run, file_name, run_numbers, short_name

MADE_BY = {"model.safetensors": MODEL_STAGES, METRICS: ("training",), "dataset.json": ("encoding",)}
"""Prefixes of artifacts' folders by their marker file."""


def named_folder(maker: str, path: Path, marker: str) -> Path:
    """Returns the resolved path of an artifact with the file `marker`, given its folder or name; `maker` writes it.

    A name is `<workflow>/<profile>/<label>` or `<workflow>/<profile>/<number>/<label>`, relative to `runs`, or prefixed
    with the folder of `--store`; the label's first word can be left out. Files that are only in a bucket are
    downloaded. Raises UserError if there is no such folder or it is damaged.
    """
    for folder in (path.absolute(), *_candidates(path, MADE_BY[marker])):
        artifact = folder.resolve()
        store_beside(artifact, Store(artifact)).fetch(artifact.name)
        if (folder / marker).is_file():
            Artifact(folder).check()
            return artifact
        if artifact.parent.name == STORE != path.parent.name and not artifact.exists():
            raise UserError(f"{path} is not finished; run its command again to continue it")
    remedy = f"name a folder written by `aiayn {maker}`, or a label in a run's {RUN}"
    if path.is_dir():
        raise UserError(f"{path} holds no {marker}; {remedy}")
    runs = (run.record.artifacts for root, rest in _in_stores(path) for run in _runs_at(root, rest.parent))
    labels = (label for run in runs for label, name in run.items() if name.startswith(MADE_BY[marker]))
    known = ", ".join(dict.fromkeys(map(short_name, labels)))
    there = f"{path.parent} has {known}" if known else f"`aiayn runs` lists those in {DEFAULT_ROOT.absolute()}"
    raise UserError(f"{path} is not a folder; {remedy}; {there}")


def named_run(path: Path) -> Run:
    """Returns a run by its folder or name; a profile's is the newest that has finished. Raises UserError for no run."""
    runs = (run for root, rest in _in_stores(path) for run in _runs_at(root, rest))
    if run := next(runs, None):
        return run
    raise UserError(f"{path} is no run of a table; `aiayn runs` lists a store's")


def _candidates(path: Path, prefixes: tuple[str, ...]) -> Iterator[Path]:
    """Yields the folders that a name may mean. A run's name means its only artifact of the kind."""
    for root, rest in _in_stores(path):
        yield root / rest
        for run in _runs_at(root, rest.parent.parent if rest.parent.name == "models" else rest.parent):
            for label, name in run.record.artifacts.items():
                if name.startswith(prefixes) and file_name(rest.name) in (file_name(label), short_name(label)):
                    yield root / STORE / name
        for run in _runs_at(root, rest):
            folders = [root / STORE / name for name in run.record.artifacts.values() if name.startswith(prefixes)]
            if len(there := [each for each in folders if store_beside(each, Store(each)).find(each.name)]) == 1:
                yield there[0]


def _runs_at(root: Path, place: Path) -> Iterator[Run]:
    """Yields the run in a folder, or a profile's runs: the newest that has finished, then the others."""
    profile, most = root / (place.parent if place.name == NEWEST else place), 1 if place.name == NEWEST else None
    for folder in (root / place, *(profile / str(number) for number in run_numbers(profile)[:most])):
        run = folder.resolve()
        if run.name.isdecimal() and (run / RUN).is_file():  # a training's record has this name, too
            yield Run.read(root.resolve(), run)


def _in_stores(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yields the folders of output that may contain a name, with the rest of the name."""
    if not path.is_absolute():
        yield DEFAULT_ROOT, path
    for root in path.parents:
        if (root / STORE).is_dir():
            yield root, path.relative_to(root)


def store_beside(folder: Path, default: Store) -> Store:
    """Returns the store that contains an artifact's folder, or the default."""
    if folder.parent.name != STORE:
        return default
    bucket = folder.parent.parent / BUCKET
    return Store(folder.parent.parent, bucket.read_text(encoding="utf-8") if bucket.is_file() else "")


def names_into(store: Store) -> Iterator[str]:
    """Yields the names of all artifacts that runs and links beside the store refer to, existing or not.

    That includes users' own links, and runs in other folders. Links to folders elsewhere are followed. Raises UserError
    for an unreadable folder or record, since its names are unknown.
    """
    artifacts, seen = Path(os.path.realpath(store.artifacts)), set[Path]()
    folders = [store.root]
    for folder in folders:
        if (place := Path(os.path.realpath(folder))) in seen or place.is_relative_to(artifacts):
            continue
        seen.add(place)
        try:
            entries = [*folder.iterdir()]
        except OSError as error:
            raise UserError(f"{folder} cannot be read ({error.strerror}); restore access to it") from None
        for entry in entries:
            if artifacts in (target := Path(os.path.realpath(entry)) if entry.is_symlink() else entry).parents:
                yield target.relative_to(artifacts).parts[0]
            elif entry.is_dir():
                folders.append(entry)
            elif entry.name == RUN and entry.is_file():
                yield from _artifacts_of(entry)


def _artifacts_of(record: Path) -> list[str]:
    """Returns the artifacts of a run's record; none for another file of that name, e.g. a training's record."""
    try:
        content = json.loads(record.read_bytes())
        return [*content["artifacts"].values()] if "artifacts" in content else []
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{record} cannot be read ({error}); restore it, or remove its folder") from None
