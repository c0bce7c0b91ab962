"""`aiayn doctor`: checks this machine for the workflows' requirements, with remedies."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import typer
from rich.filesize import decimal
from rich.text import Text

from pipeline.environment import busy_text, usable_cpus
from pipeline.errors import UserError
from pipeline.store.folders import forgetful_mount
from pipeline.store.locks import FileLock, Lock
from pipeline.store.store import Store
from workflows.cli.console import console, say
from workflows.cli.options import AddressOption, StoreOption
from workflows.engine.dag import Imported
from workflows.engine.needs import existing, obstacles, temporary_folder, why_not_writable
from workflows.requirements import requirements, unmet

STYLES = {"ok": "green", "warning": "yellow", "fails": "red"}

SHARED_MEMORY, MIN_SHARED_BYTES = Path("/dev/shm"), 1_000_000_000
"""Docker gives a container 64 MB unless asked."""

chosen_address = Imported("workflows.engine.cluster:chosen_address")
accepted_address = Imported("workflows.engine.joining:accepted_address")
device_name = Imported("pipeline.hardware:device_name")


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    verdict: Literal["ok", "warning", "fails"]
    """warning: works, but slowly or not for long; fails: does not work."""
    text: str
    remedy: str = ""
    """Empty if ok."""


def doctor(store: StoreOption = "runs", address: AddressOption = None) -> None:
    """Check this machine. One line per check, ok, warning or fails, with a remedy. Exits with 1 if any check fails.

    Takes some seconds, mostly to load torch. Changes nothing.
    """
    failed = False
    with console.status("checking; loading torch takes some seconds"):
        for finding in chain([libraries(), gpu(), cpus()], ray(address), output(store)):
            failed |= finding.verdict == "fails"
            line = Text.assemble((f"{finding.verdict:9}", STYLES[finding.verdict]), f"{finding.name:15}{finding.text}")
            if finding.remedy:
                line.append(f": {finding.remedy}")
            say(line)
    raise typer.Exit(int(failed))


def libraries() -> Finding:
    """Checks the versions of all required libraries, and of the optional ones that are installed."""
    required, extras = requirements(), requirements(optional=True)
    if wrong := [*unmet(required, too_new=True), *unmet(extras, missing=False, too_new=True)]:
        remedy = "install the versions in constraints.txt: pip install -c constraints.txt -e ."
        return Finding("libraries", "warning", f"not the versions that are tested: {'; '.join(wrong)}", remedy)
    return Finding("libraries", "ok", f"all {len(required)} that are required, in versions that should work")


def gpu() -> Finding:
    """Checks that torch can use the machine's GPUs."""
    import torch

    built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
    if torch.cuda.is_available():
        names = ", ".join(dict.fromkeys(device_name(f"cuda:{i}") for i in range(torch.cuda.device_count())))
        memory = decimal(torch.cuda.get_device_properties(0).total_memory)
        return Finding("gpu", "ok", f"{torch.cuda.device_count()} × {names}, {memory} each; {built}")
    if sorted(Path("/dev").glob("nvidia[0-9]*")):
        remedy = "install a CUDA build of torch, or a driver that supports its CUDA version (see nvidia-smi)"
        return Finding("gpu", "fails", f"torch cannot use this machine's NVIDIA GPU; {built}", remedy)
    return Finding("gpu", "ok", "none; everything runs on CPUs")


def cpus() -> Finding:
    """Counts the CPUs, as Ray is given them, and says if they are busy."""
    usable = usable_cpus()
    text = f"{usable} CPU{'s' * (usable > 1)} for runs"
    if busy := busy_text():
        return Finding("cpus", "warning", f"{text}; other programs run ({busy})", "wait for them, or expect long runs")
    return Finding("cpus", "ok", text)


def ray(address: str | None) -> Iterator[Finding]:
    """Checks that the cluster at `address`, or RAY_ADDRESS, accepts this process, or that Ray can start one here."""
    chosen = chosen_address(address)
    if chosen != "local":
        try:
            yield Finding("ray cluster", "ok", f"{accepted_address(chosen)} answers and accepts this machine")
        except UserError as error:
            yield Finding("ray cluster", "fails", str(error), "see docs/cluster.md for starting and joining a cluster")
        return
    found = [Finding("ray start", "fails", problem, remedy) for problem, remedy in obstacles()]
    free = decimal(shutil.disk_usage(existing(Path(temporary_folder()))).free) if not found else ""
    fine = f"Ray can write its files ({temporary_folder()}, {free} free) and its token, and listen on 127.0.0.1"
    yield from found or [Finding("ray start", "ok", fine)]
    if SHARED_MEMORY.is_dir() and (total := shutil.disk_usage(SHARED_MEMORY).total) < MIN_SHARED_BYTES:
        text = f"{SHARED_MEMORY} has {decimal(total)}, so Ray's shared memory is on disk, which is slower"
        yield Finding("shared memory", "warning", text, "give the container more: docker run --shm-size=2g")


def output(where: str | Path) -> Iterator[Finding]:
    """Checks the store's folder: write access and file locks; for a bucket also access and locks."""
    named = Store.at(where)
    if named.uri:
        yield _bucket(named)
    root = named.root
    there = existing(root)
    if reason := why_not_writable(root):
        yield Finding("store", "fails", f"{there} is not writable ({reason})", "choose another folder with --store")
        return
    yield Finding("store", "ok", f"{root} is writable" if there == root else f"{root} can be created")
    if place := forgetful_mount(there):
        text, remedy = f"{place} may miss for a minute what other nodes publish", "lookupcache=positive on every node"
        yield Finding("nfs", "warning", text, f"mount it with {remedy}")
    with suppress(UserError), tempfile.TemporaryDirectory(prefix=".aiayn-doctor-", dir=there) as scratch:
        target = Path(scratch) / "artifact"
        if _is_exclusive(FileLock(target, "doctor"), FileLock(target, "doctor")):
            yield Finding("file locks", "ok", "locks are exclusive on this host")
            return
    remedy = "choose a file system with flock for --store, or mount this one with flock"
    yield Finding("file locks", "fails", f"locks in {there} are not exclusive, or cannot be taken", remedy)


def _bucket(store: Store) -> Finding:
    uri, name = store.uri, f"doctor-{secrets.token_hex(4)}"
    try:
        held = _is_exclusive(store.lock(name, "doctor"), store.lock(name, ""))
        store.bucket.remove([f"store/.locks/{name}.json"])
    except UserError as error:
        return Finding("bucket", "fails", str(error).partition("; ")[0], "check --store and the credentials")
    if not held:
        remedy = "choose a service with conditional writes (If-None-Match, If-Match)"
        return Finding("bucket", "fails", f"locks in {uri} are not exclusive", remedy)
    return Finding("bucket", "ok", f"{uri} is writable, and its locks are exclusive")


def _is_exclusive(lock: Lock, same: Lock) -> bool:
    """Takes a lock like a stage, and tries to take the same lock once more."""
    with lock, same:
        return lock.take() is None and same.take() is not None
