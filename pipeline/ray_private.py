"""Uses of Ray's private API and of the wording of its errors, besides workflows.engine.joining.

Ray may change them in any release; tests/pipeline/test_ray_private.py shows which one has changed.
"""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray._private.state import state
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]  # generated
from ray.util.placement_group import PlacementGroup, remove_placement_group

from pipeline.errors import LostProcessError

LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.OutOfMemoryError,
)
"""Ray's errors for a lost process that it could not replace."""
MEMORY = re.compile(r"was ([\d.]+)GB used / ([\d.]+)GB limit")
KILLED = re.compile(r"Selected to kill: .*?task name=(.+?), required.*?memory used=([\d.]+)GB")


def lost_process(error: BaseException) -> LostProcessError:
    """Returns one of LOST, or Ray Train's error around one, as one line; with the memory used if Ray ran out of it."""
    text = str(getattr(error, "health_check_failure", error)).strip()
    remedy = "finished work is kept: rerun the same command"
    if memory := MEMORY.search(text):
        killed = ", ".join(f"{name} ({gigabytes} GB)" for name, gigabytes in KILLED.findall(text))
        return LostProcessError(
            f"out of memory: Ray killed {killed} on a machine with {memory[1]} of {memory[2]} GB in use; run fewer "
            f"processes at once (higher threads, or --workers 1) or use a machine with more memory; {remedy}"
        )
    reason, *_ = text.split("\n")
    return LostProcessError(f"Ray lost a process or a node ({reason}); {remedy}")


def lean_torch_trainer(*arguments: Any, **options: Any) -> Any:
    """Returns a TorchTrainer without two default callbacks, each of which starts a process that takes 5 s of a core.

    RunConfig(callbacks=...) can only add some. One distributes Ray datasets, which are not used here. The other is
    replaced by `remove_abandoned_placement_groups`: without a dashboard, it frees nothing and delays each end by 10 s.
    """
    # Imported here: every worker process imports this module, and ray.train takes 1.5 s of a core.
    from ray.train.torch import TorchTrainer

    dropped = ("DatasetsCallback", "PlacementGroupCleanerCallback")

    class LeanTorchTrainer(TorchTrainer):
        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()  # type: ignore[misc]  # mypy reads Train V1
            return [callback for callback in callbacks if type(callback).__name__ not in dropped]

    return LeanTorchTrainer(*arguments, **options)


def remove_abandoned_placement_groups() -> None:
    """Frees what actors of this job had reserved when they were killed, such as Ray Train's controllers.

    `ray.util.placement_group_table` has no creators, and `ray.util.state` needs the dashboard. Groups created by the
    driver or by tasks, including Tune's, stay: Ray reports their creating actor as dead although there is none.
    """
    job = ray.get_runtime_context().get_job_id()
    for serialized in state._connect_and_get_accessor().get_placement_group_table():
        group = PlacementGroupTableData.FromString(serialized)
        ours = group.creator_job_id.hex() == job and not group.is_detached
        by_dead_actor = group.creator_actor_dead and not ray.ActorID(group.creator_actor_id).is_nil()
        if ours and by_dead_actor and group.state != PlacementGroupTableData.REMOVED:
            with suppress(ray.exceptions.RpcError):  # a busy head; removed after the next failure
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))


@contextmanager
def handler_kept(number: signal.Signals) -> Iterator[None]:
    """Restores a signal's handler, if any, which `ray.init` (SIGTERM) or Ray Train (SIGINT) replaces in the body."""
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if callable(before) and signal.getsignal(number) is not before:
            signal.signal(number, before)
