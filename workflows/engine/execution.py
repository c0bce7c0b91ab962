"""Runs a step of a DAG as a Ray task: it locks, builds and publishes the step, and posts events
(`workflows.engine.events`). `workflows.engine.schedule` submits the tasks."""

import json
import shutil
import socket
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.context import Context
from pipeline.environment import worker_environment
from pipeline.errors import LostProcessError, UserError
from pipeline.parts import PARTS, continuing
from pipeline.ray_private import LOST, lost_process
from pipeline.store.artifact import Artifact
from pipeline.store.build import Build
from pipeline.store.locks import Lock
from pipeline.store.removal import ERROR_PREFIX
from pipeline.store.store import Store
from pipeline.training.layout import lacking
from pipeline.warning_events import emitting_warnings
from workflows.engine.cluster import ON_HEAD, cause_of, check_shared, cluster, map_on_ray, on_gpu, with_gpu
from workflows.engine.dag import Step, in_order, inputs_now, outdated, resolved
from workflows.engine.events import Poster, Relay, needs
from workflows.engine.interface import Watcher
from workflows.engine.plan import Reason

LIBRARIES = ("torch", "ray", "pyarrow", "sentencepiece", "sacrebleu", "sacremoses")
"""Libraries whose versions may affect results; manifests record them."""
POLL_S = 0.25


class StageError(Exception):
    """A stage raised an error that is not its user's. The message names the file with the traceback."""


def _execute(step: Step[Artifact], store: Store, board: ActorHandle) -> None:
    """Builds a step's artifact, unless another workflow using the store has built it or is building it."""
    post = Poster(board, step.fingerprint)
    post({"started": time.time()})
    with store.lock(step.name, step.label) as lock:
        _take(lock, post, store, step.name)
        with _traceback_kept(store.folder(step.name)):
            artifact = step.published(store) if _is_intact(step, store, post, lock) else _make(step, store, post, lock)
            summary = artifact.summary
    # Wait for the post, so that no step that depends on this one can post before it.
    ray.get(board.post.remote(step.fingerprint, {"finished": summary}))


@contextmanager
def _traceback_kept(folder: Path) -> Iterator[None]:
    """Keeps the traceback of any error but a UserError beside an artifact's folder, until the body succeeds."""
    file = folder.with_name(f"{ERROR_PREFIX}{folder.name}.txt")
    try:
        yield
        file.unlink(missing_ok=True)
    except (UserError, *LOST):
        raise
    except Exception as error:
        cause = cause_of(error)
        if cause is not error or isinstance(error, ray.exceptions.TaskCancelledError):
            raise
        with suppress(OSError):  # e.g. a full disk
            file.write_text(traceback.format_exc(), encoding="utf-8")
        if isinstance(error, OSError) and error.errno:  # the command line knows remedies
            raise OSError(error.errno, f"{error.strerror} (traceback: {file})", error.filename) from error
        raise StageError(f"{type(error).__name__}: {' '.join(str(error).split())[:200]} (traceback: {file})") from error


def _take(lock: Lock, post: Poster, store: Store, name: str) -> None:
    """Acquires the lock once it is free. A task waiting in `ray.get` frees its CPU for others."""
    wait = ray.remote(num_cpus=0, scheduling_strategy="DEFAULT")(emitting_warnings)
    while owner := lock.take():
        post({"waiting": f"being built by {owner}"})
        ray.get(wait.remote(post, lambda: store.lock(name, "").wait()))


def _is_intact(step: Step[Artifact], store: Store, post: Poster, lock: Lock) -> bool:
    """Whether the artifact is published, intact and built from the present content of its inputs. It is never deleted.

    A training run continues from the intact part. Any other sets the artifact aside and rebuilds it.
    """
    if store.find(step.name) is None and not store.push_left(step.name):
        return False
    stale = outdated(store.manifest(step.name) or {}, inputs_now(step, store.manifest))
    damage = None if stale else step.damage(store)
    if not (stale or damage):
        return True
    Build.of(store, step.name, lock).check()  # checking the files may have outlasted the lease
    continues = step.stage.trains and not stale
    store.reopen(step.name) if continues else store.set_aside(step.name)
    fault = f"was built from another generation of {stale}" if stale else f"is damaged ({damage})"
    outcome = "continuing from its intact part" if continues else "set aside; rerunning the step"
    post({"warning": f"{step.name} {fault}: {outcome}"})
    return False


def _make(step: Step[Artifact], store: Store, post: Poster, lock: Lock) -> Artifact:
    step.check_artifacts()
    for needed in step.inputs:
        what = f"{store.folder(needed.name)}, an input of {step.label}, is"
        if not store.uri and store.find(needed.name) is None:  # this node may have joined late (`check_shared`)
            raise UserError(f"{what} not on node {socket.gethostname()}; use a --store that all nodes share, and rerun")
        if damage := store.damage(needed.name):
            remedy = f"{'move it elsewhere and ' if needed.out else ''}rerun the same command to rebuild it"
            raise UserError(f"{what} damaged: {damage}; {remedy}")
    artifacts: dict[str, Any] = {needed.fingerprint: needed.published(store) for needed in step.inputs}
    warnings = _warnings(in_order(step.inputs), store) if step.stage.follows_source else []

    arguments = resolved(step.arguments, lambda needed: artifacts[needed.fingerprint])
    manifest = {
        "label": step.label,
        "stage": step.stage.name,
        "version": step.stage.version,
        "fingerprint": step.fingerprint,
        "inputs": inputs_now(step, store.manifest),
        "settings": [argument.model_dump(mode="json") for argument in step.arguments if hasattr(argument, "identity")],
        "libraries": {name: version(name) for name in LIBRARIES},
    }

    def make(folder: Path) -> Artifact:
        build = Build.of(store, step.name, lock)
        on_ray = partial(map_on_ray, here=bool(store.uri), emit=post, check=build.check)
        context = Context(folder, post, on_ray, build=build, warnings=warnings)
        if ray.get_gpu_ids():  # reserved for the whole step
            artifact: Artifact = with_gpu(step.stage.function, context, *arguments)
        elif "GPU" in needs(step):
            if step.stage.gpus > ray.available_resources().get("GPU", 0):
                post({"waiting": "no GPU is free"})
            artifact = on_gpu(step.stage.gpus, step.stage.function, context, *arguments)
        else:
            artifact = step.stage.function(context, *arguments)
        # A user's files are hashed for the fingerprint before they are read (`pipeline.store.hashes.cached`).
        if not step.stage.follows_source and replace(step).fingerprint != step.fingerprint:
            shutil.rmtree(folder / PARTS, ignore_errors=True)  # of which content its shards are, nobody knows
            raise UserError(f"the files of {step.label} changed while they were read; run the same command again")
        manifest["warnings"] = ray.get(post.board.warnings.remote(step.fingerprint))
        return artifact

    identity = json.dumps([manifest[name] for name in ("fingerprint", "inputs", "libraries")])
    build = continuing(make, identity) if step.stage.resumes else make
    keep, sync = step.stage.resumes or step.stage.trains, step.stage.trains
    return store.publish(step.name, build, manifest, resume=keep, flush=sync, holds_lock=lock.is_ours)


def _warnings(steps: Iterable[Step[Artifact]], store: Store) -> list[str]:
    """Lists the warnings of all steps behind a table; downloads their manifests."""
    labels: dict[str, list[str]] = {}
    for step in steps:
        manifest = store.manifest(step.name) or {}  # what the table does not need may be gone
        for warning in manifest.get("warnings", []):
            labels.setdefault(warning, []).append(step.label)
    return [f"{', '.join(of_steps)}: {warning}" for warning, of_steps in labels.items()]


@contextmanager
def working(
    missing: Mapping[Step[Artifact], Reason], store: Store, watchers: Sequence[Watcher], address: str | None
) -> Iterator[Relay]:
    """Sets up Ray for the steps `missing`, and tells the watchers. Raises UserError if a node lacks the store."""
    to_make = {step.fingerprint for step in missing}
    needed = {step.fingerprint: step for dependent in missing for step in dependent.inputs}
    cached = [step for fingerprint, step in needed.items() if fingerprint not in to_make]
    for watcher in watchers:
        watcher.begin(missing, cached)
    try:
        with cluster(address):
            check_shared(store, address)
            yield Relay(missing, watchers)
    finally:
        for watcher in watchers:
            watcher.end()


def _placement(step: Step[Artifact], store: Store) -> dict[str, Any]:
    """Returns the options of a step's Ray task: its node and its kind of process.

    If nodes share no disk, raw text is on the driver's node. A step that uses a GPU runs on a node with one.
    """
    # By default tasks run in their caller's placement group, such as a Tune trial's.
    options: dict[str, Any] = {"scheduling_strategy": "DEFAULT"}
    if step.stage.computes:
        options["runtime_env"] = {"env_vars": worker_environment()}
    if step.stage.trains:  # Ray Train's controller runs on this task's node
        options["resources"] = ON_HEAD
    if store.uri:
        options["num_gpus"] = needs(step).get("GPU", 0)
        if not step.inputs:
            node = ray.get_runtime_context().get_node_id()
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
    return options


def submit(step: Step[Artifact], store: Store, board: ActorHandle) -> Any:
    """Submits a step, whose inputs are in the store, as a Ray task; returns its reference."""
    if lack := lacking(needs(step), ray.nodes()):  # Ray would wait for such a node forever
        raise UserError(f"{step.label} reserves {lack}; lower its threads, or join a larger node")
    board.post.remote(step.fingerprint, {"submitted": time.time()})
    task = ray.remote(emitting_warnings).options(num_cpus=step.stage.cpus, name=step.label, **_placement(step, store))
    return task.remote(Poster(board, step.fingerprint), _execute, step, store, board)


def cancel(references: Iterable[Any]) -> None:
    """Cancels tasks and the tasks they started."""
    for reference in references:
        ray.cancel(reference, force=False, recursive=True)


@contextmanager
def cancelled_on_error(references: Iterable[Any]) -> Iterator[None]:
    """Cancels these tasks if the body raises. Unwraps a step's error."""
    try:
        yield
    except BaseException as error:
        cancel(references)
        cause = understood(error)
        if cause is error:
            raise
        raise cause from (error if isinstance(cause, LostProcessError) else None)


def understood(error: BaseException) -> BaseException:
    """Returns the error that a step raised, or a LostProcessError if Ray lost its process."""
    cause = cause_of(error) if isinstance(error, ray.exceptions.RayTaskError) else error
    return lost_process(cause) if isinstance(cause, LOST) else cause
