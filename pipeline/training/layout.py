"""What a run takes of a Ray cluster: GPUs or CPUs, how many workers, and their processes. Does not import Ray."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from pipeline.environment import DETERMINISTIC, worker_environment
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings

Node: TypeAlias = Mapping[str, Any]
"""A node as `ray.nodes` lists it."""
NODE_GROUP = "ray.io/node-group"
"""The label of a node's group, set by Ray's cluster launcher and KubeRay; such groups may grow."""


class ClusterLayout(NamedTuple):
    """The resources of a run on the cluster."""

    on_gpus: bool
    fewest: int
    most: int
    """Maximum number of workers; equal to `fewest` unless the number is elastic."""
    at_once: int
    """Number of such runs that fit on the cluster concurrently."""
    warnings: tuple[str, ...] = ()


def layout_on(nodes: Sequence[Node], settings: TrainingSettings) -> ClusterLayout:
    """Decides between GPUs and CPUs and on the number of workers: as set, or as many as fit on the idle cluster.

    `nodes` are as `ray.nodes` lists them. There are at most `settings.most_workers`. If an autoscaler may add nodes,
    an unset number ranges from one to that maximum, and workers that do not fit yet are waited for, with a warning; for
    GPUs that do not exist yet, `device` must be gpu. Otherwise Ray would wait forever, so this raises UserError.
    """
    nodes = [node for node in nodes if node["Alive"]]
    n_gpus, growing = sum(int(node["Resources"].get("GPU", 0)) for node in nodes), may_grow(nodes)
    if settings.device == "gpu" and not n_gpus and not growing:
        raise UserError("device is gpu, but the Ray cluster has no GPU; set device to cpu or add a node with one")
    on_gpus = settings.device == "gpu" or (settings.device == "auto" and n_gpus > 0)
    per_worker = resources(settings, on_gpus)
    wanted = listed(per_worker)
    room = sum(min(int(node["Resources"].get(name, 0) / n) for name, n in per_worker.items()) for node in nodes)
    unset = (1, settings.most_workers) if growing else (max(room, 1),) * 2
    if per_worker.get("GPU", 1) < 1:  # a share is for one worker
        unset = 1, 1
    bounds = settings.worker_bounds if settings.workers else unset
    fewest, most = (min(bound, settings.most_workers) for bound in bounds)
    warnings = []
    if growing and not n_gpus and settings.device == "auto":
        warnings.append(
            "no node of the Ray cluster has a GPU, so training uses CPUs; set device to gpu to wait for one"
        )
    if settings.workers and most < bounds[1]:
        warnings.append(f"workers is {bounds[1]}, but an update can be divided among only {most}; using {most} workers")
    if on_gpus and not settings.workers and room < min(n_gpus, settings.most_workers):
        warnings.append(
            f"{n_gpus - room} of the Ray cluster's {n_gpus} GPUs would idle: a training worker needs {wanted}, and the "
            "nodes have too few CPUs; lower threads or give Ray more CPUs (ray start --num-cpus)"
        )
    if room < fewest:
        shortage = (
            f"{fewest} training workers with {wanted} each do not fit on the Ray cluster: its {len(nodes)} nodes have "
            f"room for {room}"
        )
        if not growing:
            raise UserError(f"{shortage}; lower workers or threads, or add nodes")
        warnings.append(f"{shortage}; waiting for nodes that an autoscaler may add")
    return ClusterLayout(on_gpus, fewest, most, max(room // fewest, 1), tuple(warnings))


def may_grow(nodes: Sequence[Node]) -> bool:
    """Whether an autoscaler may add nodes to `ray.nodes`: whether Ray's launcher or KubeRay started one of them.

    Ray has no public API for what it may add.
    """
    return any(NODE_GROUP in node["Labels"] for node in nodes if node["Alive"])


def lacking(needed: Mapping[str, float], nodes: Sequence[Node]) -> str:
    """Returns, e.g., `64 CPUs, but no node has more than 2`, or an empty text if a node of `ray.nodes` may have room.

    `needed` has Ray's names of resources. An autoscaler may add any node.
    """
    for name, n in needed.items() if not may_grow(nodes) else ():
        most = max((node["Resources"].get(name, 0) for node in nodes if node["Alive"]), default=0)
        if n > most:
            return f"{n:g} {name}{'s' * (n != 1)}, but no node has {f'more than {most:g}' if most else 'any'}"
    return ""


def resources(settings: TrainingSettings, on_gpus: bool) -> dict[str, float]:
    """Returns what a worker reserves, by Ray's names."""
    return {"CPU": settings.cpus_per_worker, **({"GPU": settings.gpus_per_worker} if on_gpus else {})}


def listed(resources: Mapping[str, float]) -> str:
    """Returns resources as text, e.g. `2 CPU and 1 GPU`."""
    return " and ".join(f"{number:g} {name}" for name, number in resources.items())


def process_options(gpus: float, nodes: Sequence[Node], exact: bool = False) -> dict[str, Any]:
    """Returns the options of a Ray task that computes on `gpus` GPUs, or on none: its resources and its process.

    Ray ends a process with a GPU after one task. Where a node's only GPU is shared, later tasks use the process again,
    with torch imported and layers compiled. On several GPUs, the next task might get another one than the process has.
    """
    variables = worker_environment()
    if exact and gpus:  # with a variable of their own, such tasks never get a process that others have used
        variables |= DETERMINISTIC
    options: dict[str, Any] = {"num_gpus": gpus, "runtime_env": {"env_vars": variables}}
    if 0 < gpus < 1 and not exact and all(node["Resources"].get("GPU", 0) <= 1 for node in nodes):
        options["max_calls"] = 0
    return options
