"""Files that a stage's tasks write, and that the same stage, continued after a kill, does not write again.

calls = [(["00000.en", "00000.de"], (part, settings)), ...]         # names of files, further arguments
for counts in written(context, write_shard, calls):                 # write_shard([Path, Path], part, settings)
    ...
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pipeline.context import Context
from pipeline.errors import LockLostError, UserError
from pipeline.store.folders import HIDDEN, remove, temporary_folder
from pipeline.store.hashes import file_sha256

Built = TypeVar("Built")
PARTS = f"{HIDDEN}parts"
"""The folder of finished tasks' records, within the build folder; never part of the artifact."""


def continuing(build: Callable[[Path], Built], identity: str) -> Callable[[Path], Built]:
    """Returns `build` for `publish`: it finds the files that a killed process left, if `identity` is the same.

    If it raises a UserError before any task has finished, the build folder is deleted.
    """

    def build_on(folder: Path) -> Built:
        owner = folder / PARTS / "identity"
        is_same = owner.is_file() and owner.read_text(encoding="utf-8") == identity
        for path in folder.iterdir():
            if not is_same or (path.name.startswith(HIDDEN) and path != owner.parent):
                remove(path)
        owner.parent.mkdir(exist_ok=True)
        if not is_same:  # a kill while it is written would lose all parts
            owner.write_text(identity, encoding="utf-8")
        try:
            return build(folder)
        except UserError as error:  # without its lock, the files are another process's
            if not isinstance(error, LockLostError) and not any(owner.parent.glob("*.json")):
                shutil.rmtree(folder, ignore_errors=True)
            raise

    return build_on


def written(
    context: Context, write: Callable[..., Any], calls: Iterable[tuple[Sequence[str], Sequence[Any]]]
) -> Iterable[Any]:
    """Yields the JSON value of `write(paths, *arguments)` for each (names, arguments), in order, by `context.map`.

    The files that it writes to the paths appear under these names in the artifact.
    """
    (context.folder / PARTS).mkdir(exist_ok=True)
    return context.map(write_part, ((context.folder, names, write, *arguments) for names, arguments in calls))


def write_part(folder: Path, names: Sequence[str], write: Callable[..., Any], *arguments: Any) -> Any:
    """Writes the files of one call and then their record; or, if the record of an earlier attempt fits, reads that.

    Each attempt writes to its own folder, since another attempt, presumed dead by Ray, may still be running.
    """

    def described(within: Path) -> dict[str, list[Any]]:
        return {name: [(within / name).stat().st_size, file_sha256(within / name)] for name in names}

    record = folder / PARTS / f"{names[0].replace('/', '-')}.json"
    try:
        finished = json.loads(record.read_bytes())
        if finished["files"] == described(folder):
            return finished["result"]
    except (OSError, ValueError):  # missing or damaged
        pass
    with temporary_folder(folder) as aside:
        for path in {(within / name).parent for within in (folder, aside) for name in names}:
            path.mkdir(parents=True, exist_ok=True)
        result = write([aside / name for name in names], *arguments)
        text = json.dumps({"files": described(aside), "result": result})
        (aside / record.name).write_text(text, encoding="utf-8")
        for name in names:
            os.replace(aside / name, folder / name)
        os.replace(aside / record.name, record)
    return json.loads(text)["result"]
