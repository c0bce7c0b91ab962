"""Names for what is in the store: `runs/table2/embedded/models/en-de-base` instead of `runs/store/averaging-0123...`.

    run = begin_run(store, "table2", "embedded", table)     # by every workflow, before anything is made
    finish_run(store, run, table, table.published(store))
    named_folder("average", Path("table2/embedded/en-de-base"), "model.safetensors")    # wherever a folder is asked for

A run has the folder `runs/<workflow>/<profile>/<number>`, which holds relative links into the store: to each step of
its DAG, whether it is made yet or not, and to the files of its table. Beside the numbers, `newest` is a link to the
number of the run that was finished last, and `report.html`, `models` and so on are links to what is in `newest`. Every
link is put in place by one rename.
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
"""The file that says, in a folder of copies, which bucket they are from."""
TABLE = "table"
"""The name, in a run's folder, of the table that is made of all its models; by it the run is known."""
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
"""The folder of a run in which the artifacts of a stage have their names, by the stage's name up to its dot."""
OTHERS = "others"
"""That of all other stages."""
MADE_BY = {
    "model.safetensors": "models",
    "run.json": "trainings",
    "dataset.json": "datasets",
    "evaluation_set.json": "evaluation-sets",
}
"""The same by the file that marks what a folder holds."""

logger = logging.getLogger(__name__)


def file_name(text: str) -> str:
    """Makes a text part of a path: `en-de A1 seed 1` -> `en-de-A1-seed-1`."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "-"


def named_steps(table: Step[Artifact]) -> dict[Path, Step[Artifact]]:
    """Returns all steps behind a table, by the names of their artifacts in a run's folder.

    Raises ValueError where two steps have one label or one name: either stands for a single artifact.
    """
    steps, labels = dict[Path, Step[Artifact]](), set[str]()
    for step in in_order(table.inputs):
        kind = KINDS.get(step.stage.short_name)
        label = step.label.partition(" ")[2] if kind else step.label
        name = Path(kind or OTHERS, file_name(label or step.label))
        if name in steps or step.label in labels:
            raise ValueError(
                f"two steps are called {step.label}, or {name} in the folder of a run; give them two labels"
            )
        steps[name] = step
        labels.add(step.label)
    return steps


def begin_run(store: Store, workflow: str, profile: str, table: Step[Artifact]) -> Path:
    """Names all that a workflow needs and makes, and returns the folder of its run.

    The workflow that made the same table before continues its run; any other begins the next one. Raises UserError
    where there can be no links.
    """
    place = store.root / workflow / file_name(profile)
    try:
        with guarded(store.root / ".locks"):
            numbers = [int(run.name) for run in place.glob("*") if run.name.isdigit()]
            known = [n for n in numbers if os.path.basename(_target(place / str(n) / TABLE)) == table.name]
            run = place / str(known[0] if known else 1 + max(numbers, default=0))
            _name_steps(store, run, table)
            _link(run / TABLE, store.folder(table.name))
            if store.uri:
                (store.root / BUCKET).write_text(store.uri, encoding="utf-8")
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
            raise
        raise UserError(f"{place}: no links can be made here ({error.strerror}); choose another --store") from None
    return run


def finish_run(store: Store, run: Path, table: Step[Artifact], artifact: Artifact) -> None:
    """Names the files of a run's table, which is `made`; the run is the newest of its profile now."""
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
            if is_ours and not entry.exists():  # an earlier run had it, the newest has not
                entry.unlink()


def _name_steps(store: Store, run: Path, table: Step[Artifact]) -> None:
    for name, step in named_steps(table).items():
        _link(run / name, store.folder(step.name))


def model_names(run: Path) -> list[str]:
    """Returns the names of the models that a run has made, those that were chosen from others first."""
    links = [entry for entry in sorted((run / "models").glob("*")) if entry.exists()]
    return [entry.name for entry in sorted(links, key=lambda entry: entry.resolve().name.startswith("averaging"))]


def links_into(store: Store) -> Iterator[str]:
    """Yields the names of the artifacts that links in a folder of output lead to, made or not.

    The links are those of runs and any that a user has put beside them; a link to a folder elsewhere is followed.
    Raises UserError for a folder that cannot be read: what its links lead to is not known.
    """
    artifacts, seen = Path(os.path.realpath(store.artifacts)), set[Path]()
    folders = [store.root]
    for folder in folders:
        place = Path(os.path.realpath(folder))
        if place in seen or place.is_relative_to(artifacts):
            continue
        seen.add(place)
        try:
            entries = [*folder.iterdir()]
        except OSError as error:
            raise UserError(f"{folder} cannot be read ({error.strerror}); restore access to it") from None
        for entry in entries:
            target = Path(os.path.realpath(entry)) if entry.is_symlink() else entry
            if artifacts in target.parents:
                yield target.relative_to(artifacts).parts[0]
            elif entry.is_dir():
                folders.append(entry)


def named_folder(maker: str, path: Path, marker: str) -> Path:
    """Returns the absolute path of the folder that `path` is or names, made by the command `aiayn maker`.

    Such a folder holds the file `marker`; what of it is only in a bucket is fetched. A name is
    `<workflow>/<profile>/<model>` or `<workflow>/<profile>/<number>/<model>`, in `runs` or behind the folder given by
    `--store`. Raises UserError if there is no such folder or it is damaged.
    """
    kind = MADE_BY[marker]
    for folder in (path.absolute(), *_candidates(path, kind)):
        artifact = folder.resolve()
        if not (store := store_beside(artifact, Store(artifact))).has(artifact.name):
            store.fetch(artifact.name)
        if (folder / marker).is_file():
            Artifact(folder).check()
            return folder
    reason = f"holds no {marker}" if path.is_dir() else "is not a folder"
    raise UserError(f"{path} {reason}; name a folder that `aiayn {maker}` made, or a name in a run's folder {kind}")


def runs_with(named: Path, artifact: Path) -> Iterator[Path]:
    """Yields folders of runs that have a name for an artifact: those that `named` goes through, then the last begun."""
    for root, rest in _in_stores(named):
        yield from (root / part for part in (rest, *rest.parents[:2]))
    if artifact.parent.name == STORE:
        root = artifact.parent.parent
        links = [link for link in root.glob("*/*/*/*/*") if os.path.basename(_target(link)) == artifact.name]
        yield from sorted({link.parent.parent for link in links}, key=lambda run: run.stat().st_mtime, reverse=True)


def store_beside(folder: Path, default: Store) -> Store:
    """Returns the store that an artifact's folder is in, or the default."""
    if folder.parent.name != STORE:
        return default
    bucket = folder.parent.parent / BUCKET
    return Store(folder.parent.parent, bucket.read_text(encoding="utf-8") if bucket.is_file() else "")


def _candidates(path: Path, kind: str) -> Iterator[Path]:
    """Yields the folders in a store that a name may mean; a run's, where it has but one of the kind."""
    for root, rest in _in_stores(path):
        for named in (rest, rest.parent / kind / rest.name):
            yield (root / named).resolve()  # since the newest may be another one in a moment
        only = _entries(root / rest / kind)
        if len(only) == 1:
            yield (root / rest / kind / only[0]).resolve()


def _in_stores(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yields the folders of output that a name may lie in, with the rest of the name."""
    if not path.is_absolute():
        yield DEFAULT_ROOT, path
    for root in path.parents:
        if (root / STORE).is_dir():
            yield root, path.relative_to(root)


def _entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.exists()) if folder.is_dir() else []


def _target(link: Path) -> str:
    return os.readlink(link) if link.is_symlink() else ""


def _link(name: Path, target: Path) -> None:
    """Puts a relative link to `target` in place; a file or folder that a user has put there stays."""
    relative = os.path.relpath(target, name.parent)
    if _target(name) == relative:
        return
    if name.exists() and not name.is_symlink():
        logger.warning("%s is not a link; it stays as it is", name)
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    temporary = name.with_name(f".making-{name.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(relative)
    os.replace(temporary, name)
