"""Checks of what the workflows use: Ray, the folder of their output, MLflow."""

import fcntl
import os
import secrets
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rich.filesize import decimal

from pipeline.errors import UserError
from pipeline.store.locks import FileLock
from pipeline.store.object_store import ObjectStore, store_named
from workflows.doctor.finding import Finding
from workflows.tracking.addresses import default_uri, public_address, reason_of

LEAST_DISK_BYTES, LITTLE_DISK_BYTES = 10**9, 10 * 10**9
FULL = 0.95
"""How full the disk of its temporary folder may be before Ray refuses to keep objects on it."""
SQLITE = "sqlite:///"
ANSWER_S = 5


def ray(address: str | None) -> Iterator[Finding]:
    """Checks that the cluster at an address takes this process or, without one, that Ray can be started here."""
    from workflows.engine.cluster import LOCAL, chosen_address
    from workflows.engine.joining import accepted_address

    chosen = chosen_address(address)
    if chosen != LOCAL:
        try:
            yield Finding("ray cluster", "ok", f"{accepted_address(chosen)} answers and accepts this machine")
        except UserError as error:
            yield Finding(
                "ray cluster", "fails", str(error), "docs/cluster.md says how a cluster is started and joined"
            )
        return
    yield _ports()
    yield _temporary_folder(Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()))


def _ports() -> Finding:
    """Checks that this machine can connect to itself by the address at which Ray's processes find each other."""
    from ray.util import get_node_ip_address

    address = get_node_ip_address()
    try:
        with socket.create_server((address, 0)) as server:
            socket.create_connection(server.getsockname()[:2], timeout=ANSWER_S).close()
    except OSError as error:
        remedy = "let programs of this machine connect to each other (firewall, name of the host), or use --address"
        return Finding("ports", "fails", f"{address} cannot be reached from here ({error})", remedy)
    return Finding("ports", "ok", f"Ray starts here as needed; {address} can be reached")


def _temporary_folder(folder: Path) -> Finding:
    name = "ray's folder"
    if not os.access(folder, os.W_OK):
        return Finding(name, "fails", f"{folder} cannot be written", "set RAY_TMPDIR to a short path that can be")
    usage = shutil.disk_usage(folder)
    text = f"{decimal(usage.free)} free in {folder}"
    if usage.free < (1 - FULL) * usage.total:
        remedy = "free some space, or set RAY_TMPDIR to another disk: Ray keeps no objects on a disk that full"
        return Finding(name, "warning", f"{text}, which is more than {FULL:.0%} full", remedy)
    return Finding(name, "ok", text)


def store(where: str | Path) -> Iterator[Finding]:
    """Checks the folder of the output: that it can be written, that locks hold in it, and how much is free.

    Of a bucket, it also checks that it answers and that its locks hold.
    """
    named = store_named(where)
    if isinstance(named, ObjectStore):
        yield _bucket(named)
    root = named.root
    there = next(folder for folder in (root, *root.parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".aiayn-doctor-", dir=there) as scratch:
            held = _locks_hold(Path(scratch))
    except (OSError, UserError) as error:
        reason = getattr(error, "strerror", None) or error
        yield Finding("store", "fails", f"{there} cannot be written ({reason})", "choose another folder with --store")
        return
    yield Finding("store", "ok", f"{root} can be written" if there == root else f"{root} can be made")
    if held:
        yield Finding("file locks", "ok", "one process at a time")
    else:
        remedy = "choose a file system with flock for --store, or mount this one with it"
        yield Finding("file locks", "fails", f"two processes can hold one in {there}", remedy)
    yield _disk(there)


def _bucket(store: ObjectStore) -> Finding:
    """Takes a lock as stages do, and tries to take it once more."""
    uri, name = store.uri, f"doctor-{secrets.token_hex(4)}"
    try:
        with store.lock(name, "doctor") as lock, store.lock(name, "") as other:
            held = lock.take() is None and other.take() is not None
        store.bucket.remove([f"store/.locks/{name}.json"])
    except UserError as error:
        return Finding("bucket", "fails", str(error).partition("; ")[0], "check --store and the credentials")
    if not held:
        remedy = "choose a service with conditional writes (If-None-Match, If-Match)"
        return Finding("bucket", "fails", f"two processes can hold one lock in {uri}", remedy)
    return Finding("bucket", "ok", f"{uri} can be written, one process at a time")


def _locks_hold(folder: Path) -> bool:
    """Takes a lock as stages do, and tries to get hold of its guard twice."""
    with FileLock(folder / "artifact", "doctor") as lock:
        if lock.take() is not None or not lock.is_ours():
            return False
        guard = lock.path.parent / "guard"
        with guard.open("a") as one, guard.open("a") as other:
            fcntl.flock(one, fcntl.LOCK_EX)
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    text = f"{decimal(free)} free in {folder}"
    if free >= LITTLE_DISK_BYTES:
        return Finding("disk", "ok", text)
    remedy = "aiayn clean frees some; --plan of a workflow forecasts what it takes"
    return Finding("disk", "fails" if free < LEAST_DISK_BYTES else "warning", text, remedy)


def tracking(root: Path) -> Finding:
    """Checks that MLflow's server answers or its file can be read; a file that is not there yet is made by a run."""
    uri = default_uri(root)
    shown = public_address(uri)
    remedy = "check MLFLOW_TRACKING_URI or unset it"
    try:
        if uri.startswith(SQLITE):
            database = Path(uri.removeprefix(SQLITE))
            if not database.exists():
                return Finding("mlflow", "ok", f"{database} will be made by the first run")
            remedy = f"move {database} away; the next run makes a new one"
            n_experiments = _experiments_in(database)
        else:
            n_experiments = _experiments_at(uri)
    except Exception as error:  # MLflow, SQLAlchemy, databases and HTTP each raise their own
        reason = reason_of(error, uri)
        return Finding("mlflow", "fails", f"{shown} does not answer ({reason})", remedy)
    return Finding("mlflow", "ok", f"{shown} answers; experiments: {n_experiments}")


def _experiments_in(database: Path) -> int:
    """Counts experiments without changing the file, as MLflow would change an empty one."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=ANSWER_S)) as connection:
        return int(connection.execute("select count(*) from experiments").fetchone()[0])


def _experiments_at(uri: str) -> int:
    for name, value in {"MAX_RETRIES": "0", "TIMEOUT": str(ANSWER_S)}.items():
        os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{name}", value)
    from mlflow.tracking import MlflowClient  # takes 2 to 3 s

    return len(MlflowClient(tracking_uri=uri).search_experiments())
