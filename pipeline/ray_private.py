"""Uses of Ray's private API. No other module has any.

Ray may change them in any release; tests/pipeline/test_ray_private.py shows which one has changed and its users.

- `lean_torch_trainer` drops two of Ray Train's default callbacks; RunConfig(callbacks=...) can only add some.
- `loopback_only` makes a new cluster's processes listen on the loopback interface, as Ray itself does on macOS and
  Windows. `ray.init(_node_ip_address="127.0.0.1")` resolves that to any address of this machine.
- `abandoned_placement_groups` reads a placement group's creator and whether that actor is dead.
  `ray.util.placement_group_table` has neither, and `ray.util.state` needs the dashboard.
- `head_address`, `accepts_driver`, `has_token`, `sends_token` and `send_token` check that a head node accepts this
  process before `ray.init`, which sends a token only for the address `auto`, retries for 20 s after a refusal, printing
  a line each time, and aborts the process if token mode is on and there is no token.
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
    """Makes a cluster started by `ray.init` in the body use the address 127.0.0.1, on which all processes listen."""
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def lean_torch_trainer(*arguments: Any, **options: Any) -> "TorchTrainer":
    """Returns a TorchTrainer without two of Ray Train's processes, each of which takes 5 s of a core to start.

    One distributes Ray datasets, which are not used here. The other releases the resources of a killed controller, but
    asks the dashboard about it: without one, as in a single-machine cluster, it releases nothing within a minute, and
    the end of every run, even on errors, waits 10 s for it. The workflow engine releases them instead, by
    `abandoned_placement_groups`.
    """
    # Imported here: every worker process imports this module, and ray.train takes 1.5 s of a core.
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
    """Lists placement groups created by actors of this job that have died, and not removed.

    Groups created by the driver or by tasks, including Tune's, are never listed: Ray reports their creating actor as
    dead although there is none.
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
    """Resolves an address such as `auto` or `localhost:6379` to Ray's HOST:PORT."""
    return str(canonicalize_bootstrap_address(address) or address)


def accepts_driver(address: str, timeout_ms: int) -> bool:
    """Whether the head node accepts this process as it is. Raises RayError if no head node answers."""
    screen, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # Ray's C++ prints the failure to stderr, too
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
    """Whether RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token provides a token.

    Raises ray.exceptions.AuthenticationError if one is set but cannot be read.
    """
    return bool(AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True))


def sends_token() -> bool:
    """Whether this process sends its token when connecting."""
    return bool(is_token_auth_enabled())


def send_token() -> None:
    """Makes this process send its token when connecting."""
    _enable_token_auth()
