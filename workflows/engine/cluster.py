"""Joins or starts the Ray cluster for the steps, maps functions over it, handles interrupts, and cleans up."""

import importlib.util
import logging
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.context import CHECK_S, Context, ignore
from pipeline.environment import usable_cpus
from pipeline.errors import UserError
from pipeline.memory import release_gpu_memory
from pipeline.ray_private import handler_kept
from pipeline.store.store import Store
from pipeline.training.layout import lacking, process_options
from pipeline.warning_events import emitting_warnings
from workflows.engine.joining import accepted_address, loopback_only
from workflows.engine.needs import obstacles
from workflows.requirements import HIDES, OURS, ROOT, hiding

LOCAL = "local"
"""The address for a new cluster on this machine."""
ON_HEAD = {"node:__internal_head__": 0.001}
"""Places run controllers on the head node, which has 1.0 of this resource, so they survive the loss of other nodes."""
AHEAD = 3  # tasks of a map per CPU that run or wait
WAITING_S = 60.0
"""Seconds between reports of steps that wait for a node, and for the first answer of a node."""
OUT_OF_MEMORY = ("RAY_task_oom_retries", "0")
"""By default Ray runs a task again that its memory monitor has killed, without end, and prints 30 lines each time."""
RAY_TRAIN = ("RAY_TRAIN_V2_ENABLED", "1")
"""The version of Ray Train that training is written for, whatever the surroundings ask for."""


def map_on_ray(
    function: Callable[..., Any],
    calls: Iterable[Sequence[Any]],
    here: bool = False,
    emit: Callable[[dict[str, Any]], None] = ignore,
    check: Callable[[float], None] = lambda every_s: None,
) -> Iterator[Any]:
    """Implements `Context.map` on Ray: one task per call, results in order.

    Takes calls as they are needed, so that all together may be larger than memory. `check` is called every few seconds.
    Its first error, or a task's, cancels the other tasks and is raised unchanged. `here` keeps all tasks on this node.
    Warnings go to `emit`.
    """
    placed: dict[str, Any] = {}
    if here:
        node = ray.get_runtime_context().get_node_id()
        cpus = {each["NodeID"]: each["Resources"].get("CPU", 0) for each in ray.nodes()}[node]  # a head's may be 0
        placed = {"num_cpus": min(1, cpus), "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
    task = ray.remote(num_cpus=1)(emitting_warnings).options(name=function.__name__, **placed)
    waiting, references, results = iter(calls), list[Any](), dict[Any, Any]()
    try:
        while True:
            new = [*islice(waiting, int(len(references) < AHEAD * ray.cluster_resources().get("CPU", 1)))]
            references += [task.remote(emit, function, *arguments) for arguments in new]
            if not references:
                return
            unfinished = [reference for reference in references if reference not in results]
            finished, _ = ray.wait(unfinished, timeout=0 if new else CHECK_S)
            results.update(zip(finished, ray.get(finished), strict=True))
            check(CHECK_S)
            while references and references[0] in results:
                yield results.pop(references.pop(0))
    except BaseException as error:
        for reference in references:
            ray.cancel(reference)
        raise cause_of(error) from None


def on_gpu(gpus: float, function: Callable[..., Any], context: Context, *arguments: Any) -> Any:
    """Runs a stage's function in a process with a share of a GPU, and returns its result.

    The caller's CPUs are free meanwhile. The stage's `Context.map` runs within the process and adds no files.
    """
    # By default the task would run in its caller's placement group.
    options = process_options(gpus, ray.nodes())
    task = ray.remote(num_cpus=0, scheduling_strategy="DEFAULT", **options)(emitting_warnings)
    alone = Context(context.folder, context.emit, build=context.build)
    reference = task.remote(context.emit, with_gpu, function, alone, *arguments)
    while not ray.wait([reference], timeout=WAITING_S)[0]:
        if lack := lacking({"GPU": gpus}, ray.nodes()):
            context.emit({"waiting": f"needs {lack}"})
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise cause_of(error) from None


def with_gpu(function: Callable[..., Any], context: Context, *arguments: Any) -> Any:
    """Calls a stage's function on the GPU that Ray assigned to this process."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"  # Ray may see a GPU that torch cannot use
    try:
        return function(replace(context, device=device), *arguments)
    finally:
        release_gpu_memory()


def set_local_variables() -> None:
    """Sets environment variables for a Ray cluster on this machine, unless they are set."""
    processes = str(max(8, os.cpu_count() or 1))
    for name, value in {
        "RAY_USAGE_STATS_ENABLED": "0",
        # This machine is not preempted; the watcher would cost each training run a process and two CPU seconds.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        # By default a training run ends up to 2 s after its workers.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # By default Ray keeps one idle process per CPU. Each new process of the next step imports torch: 3 CPU seconds.
        "RAY_num_workers_soft_limit": processes,
        # Ray warns above three times this many processes, even if most are asleep.
        "RAY_worker_maximum_startup_concurrency": processes,
    }.items():
        os.environ.setdefault(name, value)


def chosen_address(address: str | None) -> str:
    """Returns the address that `cluster` would join: `address`, or RAY_ADDRESS if it is None or auto, else `local`."""
    if address in (None, "auto"):
        return os.environ.get("RAY_ADDRESS") or address or LOCAL  # otherwise Ray would join any local cluster
    return address


def shipped_packages() -> dict[str, Any]:
    """Returns the runtime environment that ships this copy of the packages to workers.

    Ray copies them to each node once. Other libraries must be installed there. A job of `ray job submit` has the
    packages of its submission.
    """
    variables = {"env_vars": dict([OUT_OF_MEMORY, RAY_TRAIN])}
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ:
        return variables
    # Not the import path: a folder of the same name in the working directory might shadow it.
    return {"py_modules": [str(ROOT / name) for name in OURS], "excludes": ["__pycache__"], **variables}


@contextmanager
def cluster(address: str | None) -> Iterator[str]:
    """Provides a Ray cluster for the body: the one already joined, the one at `address`, or a new one on this machine.

    Yields the URL of its dashboard, empty if there is none or the cluster was already joined. Without an
    `address`, RAY_ADDRESS applies, as everywhere in Ray. Workers of an existing cluster get this machine's copy of the
    project. A new cluster listens only on the loopback interface.

    Raises UserError if no cluster starts or answers at `address`, or if it demands a token that this machine lacks.
    """
    if file := hiding([os.getcwd()]):  # where Ray's workers look first
        raise UserError(f"{file} {HIDES}")
    if ray.is_initialized():
        yield ""
        return
    # Ray hides GPUs from tasks that request none and warns that this will change. Either behaviour is fine here.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.update([RAY_TRAIN])
    os.environ.setdefault(*OUT_OF_MEMORY)
    address = chosen_address(address)
    local = address == LOCAL
    if local:
        for problem, remedy in obstacles():
            raise UserError(f"Ray cannot start: {problem}; {remedy}")
        with suppress(OSError, RuntimeError):  # where Ray creates its token, readable by all who may enter
            Path.home().joinpath(".ray").mkdir(mode=0o700)
        set_local_variables()
    # Only in ray[default], which the extra `cluster` installs.
    has_dashboard = importlib.util.find_spec("aiohttp_cors") is not None
    joined = address if local else accepted_address(address)
    try:
        with (
            _interrupts_reach_children(),
            handler_kept(signal.SIGTERM),
            loopback_only() if local or joined.startswith(("127.0.0.1:", "[::1]:")) else nullcontext(),
        ):
            context = ray.init(
                address=joined,
                include_dashboard=False if local and not has_dashboard else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=None if local else shipped_packages(),
                num_cpus=usable_cpus() if local else None,
            )
    except Exception as error:  # Ray raises it if a process does not start in time
        if isinstance(error, OSError) and error.errno:
            raise
        reason, *_ = str(error).strip().split("\n")
        if local:
            remedy = "run `aiayn doctor`, or try again when the machine is less busy"
            raise UserError(f"Ray did not start ({reason}); {remedy}") from error
        raise UserError(f"Ray did not join the cluster at {joined} ({reason}); see `ray status`") from error
    try:
        url = context.dashboard_url
        yield f"http://{url}" if url else ""
    finally:
        with uninterrupted():
            ray.shutdown()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignores ctrl-C and SIGTERM in the body: impatience would leave Ray's processes behind."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _interrupts_reach_children() -> Iterator[None]:
    """Lets processes started in the body react to SIGINT, even if this process ignores it, which it keeps doing.

    In a shell script, a command started with `&` ignores SIGINT. Ray's workers would inherit this, and `ray.cancel`,
    which interrupts a worker's main thread, would stop no task.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    # A new program inherits ignored signals but no handlers: it starts with the default action.
    signal.signal(signal.SIGINT, lambda _signal, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_shared(store: Store, address: str | None) -> None:
    """Raises UserError if a node of the cluster that answers within a minute does not share the store's folder."""
    nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    if store.uri or (len(nodes) == 1 and chosen_address(address) == LOCAL):
        return
    folder, probes = store.root / f".probe-{secrets.token_hex(4)}", dict[Any, str]()
    folder.mkdir(parents=True)
    try:
        for node in nodes:
            placed: Any = NodeAffinitySchedulingStrategy(node, soft=True)
            probe = ray.remote(num_cpus=0, scheduling_strategy=placed)
            probes[probe(lambda file: os.access(file.parent, os.W_OK) and file.touch()).remote(folder / node)] = node
        for answer in ray.wait([*probes], num_returns=len(probes), timeout=WAITING_S)[0]:
            if not (folder / probes[answer]).exists():
                node = nodes[probes[answer]]
                raise UserError(
                    f"--store {store.root}: node {node['NodeManagerHostname']} ({node['NodeManagerAddress']}) does not "
                    "share this folder or may not write to it; choose one that all nodes share, or a bucket (s3://...)"
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cause_of(error: BaseException) -> BaseException:
    """Unwraps Ray's errors: returns an error that the user can fix (bad input, full disk), or else `error` itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError | OSError) and not isinstance(cause, ray.exceptions.RayTaskError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
