"""The private parts of Ray that this project needs. No other module imports any.

Ray may change them in any release. tests/pipeline/test_ray_private.py says which one has changed and who relies on it.

- `lean_torch_trainer` drops two of Ray Train's default callbacks; RunConfig(callbacks=...) can only add some.
- `loopback_only` makes a new cluster's processes listen on the loopback interface, as Ray itself does on macOS and
  Windows. `ray.init(_node_ip_address="127.0.0.1")` takes that for any address of this machine.
- `abandoned_placement_groups` reads who created a placement group, and whether that actor is dead.
  `ray.util.placement_group_table` leaves both out, and `ray.util.state` needs the dashboard.
- `head_address`, `accepts_driver`, `has_token`, `sends_token` and `send_token` ask a head node whether it accepts this
  process, before `ray.init`: which sends a token for the address `auto` alone, asks again for 20 s after a refusal,
  printing a line each time, and aborts the process where token mode is on and there is no token.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ray
from ray._private import ray_constants
from ray._private.authentication.authentication_token_setup import _enable_token_auth
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray._private.services import canonicalize_bootstrap_address
from ray._private.state import state
from ray._raylet import AuthenticationTokenLoader, InnerGcsClient  # type: ignore[attr-defined]  # compiled
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]  # generated
from ray.util.placement_group import PlacementGroup

if TYPE_CHECKING:
    from ray.train.torch import TorchTrainer


@contextmanager
def loopback_only() -> Iterator[None]:
    """Gives a cluster that `ray.init` starts in the body the address 127.0.0.1, where all its processes listen."""
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def lean_torch_trainer(*arguments: Any, **options: Any) -> "TorchTrainer":
    """Makes a TorchTrainer that runs without two of Ray Train's processes, each of which takes 5 s of a core to start.

    One hands out Ray datasets, which this project does not use. The other frees what a killed controller had reserved,
    but asks the dashboard about the controller: where there is none, as in a cluster on one machine, it frees nothing
    within a minute, and the end of every training, in an error too, waits 10 s for it. The workflow engine frees it
    instead, by `abandoned_placement_groups`.
    """
    # Every worker process of a workflow imports this module, and ray.train takes 1.5 s of a core.
    from ray.train.torch import TorchTrainer
    from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

    class LeanTorchTrainer(TorchTrainer):
        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()  # type: ignore[misc]  # mypy reads Train V1
            return [
                callback
                for callback in callbacks
                if not isinstance(callback, DatasetsCallback | PlacementGroupCleanerCallback)
            ]

    return LeanTorchTrainer(*arguments, **options)


def abandoned_placement_groups() -> list[PlacementGroup]:
    """Lists the placement groups that actors of this job created before they died, and that nobody has removed.

    Groups created by the driver or by tasks, Tune's among them, are never listed: Ray calls their creating actor dead
    although they have none.
    """
    job, abandoned = ray.get_runtime_context().get_job_id(), []
    for serialized in state._connect_and_get_accessor().get_placement_group_table():
        group = PlacementGroupTableData.FromString(serialized)
        ours = group.creator_job_id.hex() == job and not group.is_detached
        by_dead_actor = group.creator_actor_dead and not ray.ActorID(group.creator_actor_id).is_nil()
        if ours and by_dead_actor and group.state != PlacementGroupTableData.REMOVED:
            abandoned.append(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))
    return abandoned


def head_address(address: str) -> str:
    """Returns the HOST:PORT that Ray takes an address such as `auto` or `localhost:6379` for."""
    return str(canonicalize_bootstrap_address(address) or address)


def accepts_driver(address: str, timeout_ms: int) -> bool:
    """Asks the head node whether it accepts this process as it is. Raises RayError where no head node answers."""
    screen, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # Ray's C++ reports the failure there, too
    try:
        InnerGcsClient.standalone(address, None, timeout_ms)
    except ray.exceptions.AuthenticationError:
        return False
    finally:
        os.dup2(screen, 2)
        os.close(screen)
        os.close(nowhere)
    return True


def has_token() -> bool:
    """Says whether RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token gives this machine a token.

    Raises ray.exceptions.AuthenticationError where one of them is set and cannot be read.
    """
    return bool(AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True))


def sends_token() -> bool:
    """Says whether this process sends its token when it connects."""
    return bool(is_token_auth_enabled())


def send_token() -> None:
    """Makes this process send its token when it connects."""
    _enable_token_auth()
