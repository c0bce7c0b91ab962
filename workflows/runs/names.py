"""Names for what is in the store: `runs/table2/embedded/models/en-de-base` instead of `runs/store/averaging-0123...`.

    publish_names(store, record)                                             # by every workflow, as it goes
    named_folder("average", Path("table2/embedded/en-de-base"), "model.safetensors")    # wherever a folder is asked for

A run has the folder `runs/<workflow>/<profile>/<number>`, which holds relative links to folders and files in the store.
Beside the numbers, `newest` is a link to the number of the run that was finished last, and `report.html`, `models` and
so on are links to what is in `newest`. Every link is put in place by one rename. Where a file system has no links, a
folder's name is a small file that holds the path, which is read here, and a file's name is a copy of it.
"""

import difflib
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.locks import guarded
from pipeline.store.store import LocalStore
from pipeline.training.metrics import METRICS
from workflows.runs.record import RECORDS, Record, StepRecord, record_name

NEWEST, DEFAULT_ROOT, STORE = "newest", Path("runs"), "store"
KINDS = {
    "averaging": "models",
    "parser_choice": "models",
    "training": "trainings",
    "encoding": "datasets",
    "vocabulary": "vocabularies",
    "cleaning": "texts",
    "corpus_report": "text-reports",
    "decoding": "translations",
    "parser_decoding": "translations",
    "parses": "parses",
    "scoring": "scores",
    "tree_scores": "scores",
}
"""The folder of a run in which the artifacts of a stage have their names, by the stage's name up to its dot."""
CURVES = "curves"
MADE_BY = {"model.safetensors": "models", "run.json": "trainings", "dataset.json": "datasets"}
"""The same by the file that tells what a folder holds."""
NEAR, MOST_NEAR = 0.4, 5
POINTER = "folder: "
"""What a file begins with that stands in for a link to a folder."""
POINTER_BYTES = 4096

logger = logging.getLogger(__name__)


def file_name(text: str) -> str:
    """Makes a text part of a path: `en-de A1 seed 1` -> `en-de-A1-seed-1`."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "-"


def links_of(store: LocalStore, record: Record) -> dict[str, Path]:
    """Returns what a run has made so far: paths within the run's folder, and those in the store."""
    links = {}
    for step in record.steps:
        kind, folder = KINDS.get(step.stage.partition(".")[0]), store.folder(step.folder)
        if kind and store.has(step.folder):
            links[f"{kind}/{_step_name(step)}"] = folder
            if kind == "trainings":
                links[f"{CURVES}/{_step_name(step)}.jsonl"] = folder / METRICS
    if record.table and store.has(record.table):
        links |= {file.name: file for file in sorted(store.folder(record.table).iterdir()) if file.name != MANIFEST}
    links["record.json"] = store.folder(f"{record_name(record.id)}.json")
    return links


def model_names(record: Record) -> list[str]:
    """Returns the names of the models that a run has made or found, those that were chosen from others first."""
    there = [step for step in record.steps if step.state in ("cached", "finished")]
    made = [step for step in there if KINDS.get(step.stage.partition(".")[0]) == "models"]
    chosen = sorted(made, key=lambda step: step.stage.startswith("averaging"))
    return list(dict.fromkeys(map(_step_name, chosen)))


def publish_names(store: LocalStore, record: Record) -> None:
    """Names what a run has made so far; once it is finished, it is the newest of its profile.

    Several workflows may do so at once.
    """
    run = store.root / record.run
    with guarded(store.folder(RECORDS) / ".locks"):
        for name, target in links_of(store, record).items():
            _link(run / name, target)
        if record.state == "finished":
            profile = run.parent
            _link(profile / NEWEST, run)
            for entry in sorted(entry for entry in run.iterdir() if not entry.name.startswith(".")):
                _link(profile / entry.name, profile / NEWEST / entry.name, copied=entry)
            for entry in profile.iterdir():
                if entry.is_symlink() and not entry.exists():  # an earlier run had it, the newest has not
                    entry.unlink()


def remove_run(store: LocalStore, records: Sequence[Record]) -> None:
    """Removes the folder of a run, given all its records; what a user has put there stays."""
    run = store.root / records[0].run
    names = {run / name for record in records for name in links_of(store, record)}  # copies, where there are no links
    for parent, folders, files in os.walk(run, topdown=False):
        for entry in (Path(parent, name) for name in (*folders, *files)):
            if entry.is_symlink() or _pointed(entry) or (entry in names and entry.is_file()):
                entry.unlink()
        if not os.listdir(parent):
            os.rmdir(parent)


def remove_links_to(store: LocalStore, place: str, gone: Collection[str]) -> None:
    """Removes, below a folder of the output, links to artifacts that are about to go, and those that lead nowhere."""
    for parent, folders, files in os.walk(store.root / place):
        for entry in (Path(parent, name) for name in (*folders, *files)):
            pointed = os.readlink(entry) if entry.is_symlink() else _pointed(entry)
            target = Path(os.path.normpath(entry.parent / pointed))
            if not pointed or not target.is_relative_to(store.root):
                continue
            leads_to = _followed(store.root, target.relative_to(store.root))
            inside = leads_to.relative_to(store.artifacts).parts if leads_to.is_relative_to(store.artifacts) else ()
            if not leads_to.exists() or (inside and inside[0] in gone):
                entry.unlink()


def named_folder(maker: str, path: Path, marker: str) -> Path:
    """Returns the absolute path of the folder that `path` is or names, made by the command `aiayn maker`.

    Such a folder holds the file `marker`. A name is `<workflow>/<profile>/<model>` or `<workflow>/<profile>/<number>/
    <model>`, in `runs` or behind the folder given by `--store`. Raises UserError if there is no such folder, with names
    that are near, or if it is damaged.
    """
    kind = MADE_BY[marker]
    for folder in (path.absolute(), *_candidates(path, kind)):
        if (folder / marker).is_file():
            Artifact(folder).check()
            return folder
    reason = f"holds no {marker}" if path.is_dir() else "is not a folder"
    raise UserError(f"{path} {reason}; name a folder that `aiayn {maker}` made{_others(path, kind)}")


def _candidates(path: Path, kind: str) -> Iterator[Path]:
    """Yields the folders in a store that a name may mean; a run's, where it has but one of the kind."""
    for root, rest in _in_stores(path):
        for named in (rest, rest.parent / kind / rest.name):
            yield _followed(root, named).resolve()  # since the newest may be another one in a moment
        only = _entries(_followed(root, rest / kind))
        if len(only) == 1:
            yield _followed(root, rest / kind / only[0]).resolve()


def _in_stores(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yields the folders of output that a name may lie in, with the rest of the name."""
    if not path.is_absolute():
        yield DEFAULT_ROOT, path
    for root in path.parents:
        if (root / STORE).is_dir():
            yield root, path.relative_to(root)


def _others(path: Path, kind: str) -> str:
    """Lists names of the same kind, those like `path` first."""
    for root, rest in _in_stores(path):
        if names := _names(root, kind):
            near = difflib.get_close_matches(rest.as_posix(), names, MOST_NEAR, NEAR) or names[:MOST_NEAR]
            prefix = "" if root == DEFAULT_ROOT else f"{root}/"
            return f", or one of {', '.join(f'{prefix}{name}' for name in near)}"
    return ""


def _names(root: Path, kind: str) -> list[str]:
    """Returns the names of a kind, those of the newest runs first; the folder of the kind is left out of them."""
    if not root.is_dir():
        return []
    profiles = [profile for workflow in sorted(root.iterdir()) if workflow.is_dir() for profile in _folders(workflow)]
    newest, others = [], []
    for profile in (profile for profile in profiles if profile.parent.name != STORE):
        place = profile.relative_to(root)
        newest += [(place / name).as_posix() for name in _entries(_followed(root, place / NEWEST / kind))]
        for run in sorted((run for run in _folders(profile) if run.name.isdigit()), key=lambda run: -int(run.name)):
            others += [(place / run.name / name).as_posix() for name in _entries(run / kind)]
    return newest + others


def _folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())


def _entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def _step_name(step: StepRecord) -> str:
    """Makes a name of a step's label: `average en-de base` -> `en-de-base`."""
    return file_name(step.label.partition(" ")[2] or step.label)


def _link(name: Path, target: Path, copied: Path | None = None) -> None:
    """Puts a relative link to `target` in place; a folder that a user has put there stays.

    `copied` is what `target` leads to, for file systems without links.
    """
    relative = os.path.relpath(target, name.parent)
    if name.is_symlink() and os.readlink(name) == relative:
        return
    if name.is_dir() and not name.is_symlink():
        logger.warning("%s is not a link; it stays as it is", name)
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    temporary = name.with_name(f".making-{name.name}")
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(relative)
    except OSError:
        _copy(temporary, copied or target, relative)
    os.replace(temporary, name)


def _copy(name: Path, target: Path, relative: str) -> None:
    """Stands in for a link where there are none: a file with the path of a folder, or a copy of a file."""
    if target.is_file() and not _pointed(target):
        shutil.copyfile(target, name)
    else:
        name.write_text(f"{POINTER}{relative}\n", encoding="utf-8")


def _pointed(path: Path) -> str:
    """Returns the path that a file which stands in for a link holds; empty if it is no such file."""
    if not path.is_file() or path.stat().st_size > POINTER_BYTES:
        return ""
    text = path.read_bytes().decode("utf-8", errors="replace")
    return text.removeprefix(POINTER).strip() if text.startswith(POINTER) else ""


def _followed(root: Path, name: Path) -> Path:
    """Returns the path that a name in `root` stands for, where files stand in for links."""
    path = root.absolute()
    for part in name.parts:
        path = path / part
        while pointed := _pointed(path):
            path = _followed(Path("/"), Path(os.path.normpath(path.parent / pointed)).relative_to("/"))
    return path
