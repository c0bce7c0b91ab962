"""The plan of an epoch, computed once per node and shared by its workers.

The first worker computes it into files in the node's temporary folder (TMPDIR); the others wait and map them. A plan
takes 5 bytes a pair, and 25 more while it is computed.

A worker locks a plan's folder while it uses the plan. The lock is the kernel's (flock), so it ends with the process,
however that ends. The last user deletes the folder. After a kill, the node's next run deletes it, or reuses it if it is
the right plan and intact.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.text import batching
from pipeline.text.batching import EpochPlan, plan_epoch
from pipeline.text.encoding import EncodedSplit

SHA256 = "sha256"
"""The file with a plan's hash, written last."""


def shared_plan(split: EncodedSplit, settings: TrainingSettings, epoch: int) -> EpochPlan:
    """Returns `plan_epoch` of a split, memory-mapped from files shared by this machine's processes.

    Raises UserError like `plan_epoch`, and if the files cannot be written or locked (e.g. a full disk).
    """
    code = hashlib.sha256(Path(batching.__file__).read_bytes()).hexdigest()
    decisive = [split.sha256(), settings.seed, epoch, settings.budget_tokens, settings.micro_batches]
    name = hashlib.sha256(json.dumps([*decisive, code, np.__version__]).encode()).hexdigest()[:32]
    folder = Path(tempfile.gettempdir()) / f"aiayn-plans-{os.getuid()}" / name
    try:
        return _shared(folder, split, settings, epoch)
    except OSError as error:
        raise UserError(
            f"the plan of epoch {epoch}, {5 * len(split) / 1e6:.0f} MB, cannot be shared in {folder.parent} ({error}); "
            "free space there, or set TMPDIR to another folder on this machine, before `ray start` if the cluster runs "
            "already"
        ) from error


def _shared(folder: Path, split: EncodedSplit, settings: TrainingSettings, epoch: int) -> EpochPlan:
    folder.parent.mkdir(0o700, exist_ok=True)
    if folder.parent.lstat().st_uid != os.getuid():
        raise PermissionError("it belongs to another user")
    with _locked(folder.parent, fcntl.LOCK_EX):
        for other in folder.parent.iterdir():
            if other != folder:
                _remove_unused(other)
        plan = _read(folder, settings)
        if plan is None:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                _write(folder, plan_epoch(split.source_lengths, split.target_lengths, settings, epoch))
                plan = _read(folder, settings)
                if plan is None:
                    raise OSError("the plan cannot be read back")
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        in_use = os.open(folder, os.O_RDONLY)
        fcntl.flock(in_use, fcntl.LOCK_SH)
    weakref.finalize(plan, _release, folder, in_use)
    return plan


def _release(folder: Path, in_use: int) -> None:
    """Ends one use of a plan; the last user deletes it, unless a process that is computing a plan will do so."""
    os.close(in_use)
    with suppress(OSError), _locked(folder.parent, fcntl.LOCK_EX | fcntl.LOCK_NB):
        _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    """Deletes an unused plan. The caller must hold the lock on the folder of all plans."""
    with suppress(OSError), _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path, operation: int) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


def _write(folder: Path, plan: EpochPlan) -> None:
    for name, array in plan.arrays.items():
        with (folder / f"{name}.npy").open("wb") as file:  # np.save may not report a full disk
            write_array_header_1_0(file, header_data_from_array_1_0(np.ascontiguousarray(array)))
            file.write(np.ascontiguousarray(array).data)
    (folder / SHA256).write_text(plan.sha256())


def _read(folder: Path, settings: TrainingSettings) -> EpochPlan | None:
    """Maps a plan; None if it is missing, unfinished or damaged."""
    try:
        sha256 = (folder / SHA256).read_text()
        arrays = {path.stem: np.asarray(np.load(path, mmap_mode="r")) for path in folder.glob("*.npy")}
        plan = EpochPlan(micro_batches=settings.micro_batches, **arrays)
    except (OSError, ValueError, TypeError):
        return None
    return plan if plan.sha256() == sha256 else None
