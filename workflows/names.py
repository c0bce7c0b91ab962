"""Readable names for artifacts: `runs/table2/embedded/models/en-de-base` instead of `runs/store/averaging-0123...`.

    run = begin_run(store, "table2", "embedded", table)     # by every workflow, before its first step
    finish_run(store, run, table, table.published(store))
    named_folder("average", Path("table2/embedded/en-de-base"), "model.safetensors")    # for folders in options

The folder of a run, `runs/<workflow>/<profile>/<number>`, holds relative links into the store: to the artifact of each
step, even before it exists, and to the files of the run's table. Beside the numbers, `newest` links to the last
finished run, and `report.html`, `models` and so on link to the entries of `newest`. Links are replaced atomically.
"""

import errno
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.hashes import STORE
from pipeline.store.locks import guarded
from pipeline.store.store import Store
from workflows.engine.dag import Step, in_order

NEWEST, DEFAULT_ROOT = "newest", Path("runs")
BUCKET = "bucket"
"""In a folder of local copies, the file with the bucket's address."""
TABLE = "table"
"""The link, in a run's folder, to its table. It identifies the run."""
KINDS = {
    "averaging": "models",
    "parser_choice": "models",
    "training": "trainings",
    "encoding": "datasets",
    "vocabulary": "vocabularies",
    "cleaning": "texts",
    "evaluation_set": "evaluation-sets",
    "corpus_report": "text-reports",
    "decoding": "translations",
    "parses": "parses",
    "scoring": "scores",
    "tree_scores": "scores",
}
"""Subfolders of a run's folder by stage, named up to the dot."""
OTHERS = "others"
"""The subfolder for all other stages."""
MADE_BY = {
    "model.safetensors": "models",
    "run.json": "trainings",
    "dataset.json": "datasets",
    "evaluation_set.json": "evaluation-sets",
}
"""Subfolders of a run's folder by the marker file of an artifact."""

logger = logging.getLogger(__name__)


def file_name(text: str) -> str:
    """Turns text into a file name: `en-de A1 seed 1` -> `en-de-A1-seed-1`."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "-"


def named_steps(table: Step[Artifact]) -> dict[Path, Step[Artifact]]:
    """Returns all steps behind a table, by the names of their artifacts in a run's folder.

    Raises ValueError if two steps share a label or a name, since each must identify one artifact.
    """
    steps, labels = dict[Path, Step[Artifact]](), set[str]()
    for step in in_order(table.inputs):
        kind = KINDS.get(step.stage.short_name)
        label = step.label.partition(" ")[2] if kind else step.label
        name = Path(kind or OTHERS, file_name(label or step.label))
        if name in steps or step.label in labels:
            raise ValueError(f"{step.label}, named {name} in a run's folder: two steps have this label or this name")
        steps[name] = step
        labels.add(step.label)
    return steps


def begin_run(store: Store, workflow: str, profile: str, table: Step[Artifact]) -> Path:
    """Links a run's folder to all artifacts of a workflow, and returns it.

    A table with a run already keeps it; any other gets the next number. Raises UserError if the file system has no
    symbolic links.
    """
    place = store.root / workflow / file_name(profile)
    try:
        with guarded(store.root / ".locks"):
            numbers = _run_numbers(place)
            known = [n for n in numbers if os.path.basename(_target(place / str(n) / TABLE)) == table.name]
            run = place / str(known[0] if known else 1 + max(numbers, default=0))
            _name_steps(store, run, table)
            _link(run / TABLE, store.folder(table.name))
            if store.uri:
                (store.root / BUCKET).write_text(store.uri, encoding="utf-8")
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
            raise
        raise UserError(f"{place}: cannot create symbolic links ({error.strerror}); choose another --store") from None
    return run


def finish_run(store: Store, run: Path, table: Step[Artifact], artifact: Artifact) -> None:
    """Links a run's folder to the files of its finished table, `artifact`, and `newest` to the run."""
    profile = run.parent
    with guarded(store.root / ".locks"):
        _name_steps(store, run, table)
        for file in sorted(artifact.folder.iterdir()):
            _link(run / file.name, file)
        _link(profile / NEWEST, run)
        for entry in sorted(run.iterdir()):
            _link(profile / entry.name, profile / NEWEST / entry.name)
        for entry in profile.iterdir():
            is_ours = _target(entry).startswith(f"{NEWEST}{os.sep}")
            if is_ours and not entry.exists():  # only an earlier run had it
                entry.unlink()


def _name_steps(store: Store, run: Path, table: Step[Artifact]) -> None:
    for name, step in named_steps(table).items():
        _link(run / name, store.folder(step.name))


def model_names(run: Path) -> list[str]:
    """Returns the names of a run's finished models, chosen ones before candidates."""
    folder = run / "models"
    return sorted(_entries(folder), key=lambda name: (folder / name).resolve().name.startswith("averaging"))


def links_into(store: Store) -> Iterator[str]:
    """Yields the names of all artifacts that links beside the store point to, existing or not.

    That includes users' own links. Links to folders elsewhere are followed. Raises UserError for an unreadable folder,
    since its links are unknown.
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


def named_folder(maker: str, path: Path, marker: str) -> Path:
    """Returns the absolute path of an artifact with the file `marker`, given its folder or name; `maker` writes it.

    A name is `<workflow>/<profile>/<model>` or `<workflow>/<profile>/<number>/<model>`, relative to `runs`, or prefixed
    with the folder of `--store`. Files that are only in a bucket are downloaded. Raises UserError if there is no such
    folder or it is damaged.
    """
    kind = MADE_BY[marker]
    for folder in (path.absolute(), *_candidates(path, kind)):
        artifact = folder.resolve()
        if not (store := store_beside(artifact, Store(artifact))).has(artifact.name):
            store.fetch(artifact.name)
        if (folder / marker).is_file():
            Artifact(folder).check()
            return folder
        if artifact.parent.name == STORE != path.parent.name and not artifact.exists():
            raise UserError(f"{path} is not finished; run its command again to continue it")
    reason = f"holds no {marker}" if path.is_dir() else "is not a folder"
    raise UserError(f"{path} {reason}; name a folder written by `aiayn {maker}`, or an entry of a run's {kind}/")


def runs_with(named: Path, artifact: Path) -> Iterator[Path]:
    """Yields the folders of runs that link to an artifact: first those on the path `named`, then the newest."""
    for root, rest in _in_stores(named):
        yield from (root / part for part in (rest, *rest.parents[:2]))
    if artifact.parent.name == STORE:
        root = artifact.parent.parent
        links = [link for link in root.glob("*/*/*/*/*") if os.path.basename(_target(link)) == artifact.name]
        yield from sorted({link.parent.parent for link in links}, key=lambda run: run.stat().st_mtime, reverse=True)


def store_beside(folder: Path, default: Store) -> Store:
    """Returns the store that contains an artifact's folder, or the default."""
    if folder.parent.name != STORE:
        return default
    bucket = folder.parent.parent / BUCKET
    return Store(folder.parent.parent, bucket.read_text(encoding="utf-8") if bucket.is_file() else "")


def _candidates(path: Path, kind: str) -> Iterator[Path]:
    """Yields the folders that a name may mean. A run's name means its only artifact of the kind."""
    for root, rest in _in_stores(path):
        for named in (rest, rest.parent / kind / rest.name):
            yield (root / named).resolve()  # resolved now: `newest` may change
        for number in sorted(_run_numbers(root / rest.parent), reverse=True):
            # Of a run that has not finished, so `newest` does not lead to it.
            yield (root / rest.parent / f"{number}" / kind / rest.name).resolve()
        only = _entries(root / rest / kind)
        if len(only) == 1:
            yield (root / rest / kind / only[0]).resolve()


def _in_stores(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yields the folders of output that may contain a name, with the rest of the name."""
    if not path.is_absolute():
        yield DEFAULT_ROOT, path
    for root in path.parents:
        if (root / STORE).is_dir():
            yield root, path.relative_to(root)


def _run_numbers(profile: Path) -> list[int]:
    return [int(run.name) for run in profile.glob("*") if run.name.isdecimal()]


def _entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.exists()) if folder.is_dir() else []


def _target(link: Path) -> str:
    return os.readlink(link) if link.is_symlink() else ""


def _link(name: Path, target: Path) -> None:
    """Creates or replaces a relative link to `target`; a user's file or folder of that name stays."""
    relative = os.path.relpath(target, name.parent)
    if _target(name) == relative:
        return
    if name.exists() and not name.is_symlink():
        logger.warning("%s is not a link, so it is left as it is", name)
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    temporary = name.with_name(f".making-{name.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(relative)
    os.replace(temporary, name)
