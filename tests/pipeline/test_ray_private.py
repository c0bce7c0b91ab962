"""pipeline.ray_private: what it relies on in Ray is still there, and does what it relies on."""

import importlib
import re
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.train.torch import TorchTrainer
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

PATIENCE_S = 30
CHANGED = f"Ray {ray.__version__} has changed a private part that pipeline/ray_private.py relies on: "


@pytest.mark.parametrize(
    "path",
    [
        "ray.train.v2._internal.callbacks.datasets.DatasetsCallback",
        "ray.train.v2._internal.callbacks.placement_group_callback.PlacementGroupCleanerCallback",
        "ray._private.ray_constants.ENABLE_RAY_CLUSTER",
        "ray.train._internal.utils.get_address_and_port",
        "ray.train.torch.config._TorchBackend.on_start",
        "ray.train.torch.config._TorchBackend.on_shutdown",
        "ray.train.torch.config._set_torch_distributed_env_vars",
        "ray._private.state.state._connect_and_get_accessor",
        "ray._private.authentication.authentication_token_setup._enable_token_auth",
        "ray._private.authentication.authentication_utils.is_token_auth_enabled",
        "ray._private.services.canonicalize_bootstrap_address",
        "ray._raylet.AuthenticationTokenLoader.instance",
        "ray._raylet.AuthenticationTokenLoader.has_token",
        "ray._raylet.InnerGcsClient.standalone",
        "ray._raylet.GlobalStateAccessor.get_placement_group_table",
        "ray.core.generated.gcs_pb2.PlacementGroupTableData.FromString",
        "ray.core.generated.gcs_pb2.PlacementGroupTableData.REMOVED",
        "ray.core.generated.gcs_pb2.PlacementGroupTableData.STATE_FIELD_NUMBER",
        "ray.core.generated.gcs_pb2.PlacementGroupTableData.IS_DETACHED_FIELD_NUMBER",
        "ray.core.generated.gcs_pb2.PlacementGroupTableData.PLACEMENT_GROUP_ID_FIELD_NUMBER",
        "ray.core.generated.gcs_pb2.PlacementGroupTableData.CREATOR_JOB_ID_FIELD_NUMBER",
        "ray.core.generated.gcs_pb2.PlacementGroupTableData.CREATOR_ACTOR_ID_FIELD_NUMBER",
        "ray.core.generated.gcs_pb2.PlacementGroupTableData.CREATOR_ACTOR_DEAD_FIELD_NUMBER",
    ],
)
def test_private_part_exists(path: str) -> None:
    """Every module, class, method and field that pipeline.ray_private names is where it was."""
    names = path.split(".")
    for n_modules in range(len(names) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(names[:n_modules]))
        except ModuleNotFoundError:
            continue
        for name in names[n_modules:]:
            assert hasattr(found, name), f"{CHANGED}{path} is gone"
            found = getattr(found, name)
        return
    pytest.fail(f"{CHANGED}{path} is gone")


def kinds(trainer: TorchTrainer) -> list[str]:
    """Names the classes of the callbacks that a trainer starts with."""
    made = getattr(trainer, "_create_default_callbacks", None)
    assert made, f"{CHANGED}TorchTrainer._create_default_callbacks, which lean_torch_trainer overrides, is gone"
    return [type(callback).__name__ for callback in made()]


@pytest.mark.usefixtures("ray_cluster")
def test_lean_trainer_starts_without_the_two_processes() -> None:
    """Ray's own trainer has both callbacks, ours all the others in the same order."""
    from pipeline.ray_private import lean_torch_trainer

    dropped = ["PlacementGroupCleanerCallback", "DatasetsCallback"]
    default = kinds(TorchTrainer(print))
    for name in dropped:
        assert name in default, f"{CHANGED}{name} is no longer a default callback; stop dropping it"
    assert kinds(lean_torch_trainer(print)) == [name for name in default if name not in dropped]


def test_workers_about_to_be_killed_are_asked_nothing() -> None:
    """Ray's own backend asks each to leave the process group, and waits for those that are stuck in a sum."""
    from ray.train.torch import TorchConfig

    from pipeline.ray_private import bound_torch_config

    class AskedError(Exception):
        pass

    class Group(list[Any]):
        def execute_async(self, *_: Any, **__: Any) -> list[Any]:
            raise AskedError

    with pytest.raises(AskedError):  # otherwise there is no need for a way of our own
        TorchConfig().backend_cls().on_shutdown(Group(), TorchConfig())
    config = bound_torch_config("gloo", print)
    config.backend_cls().on_shutdown(Group(), config)


def test_public_table_does_not_name_the_creator(ray_cluster: None) -> None:
    """As soon as Ray's public table does, abandoned_placement_groups can use it instead of the private one."""
    group = placement_group([{"CPU": 1}])
    try:
        ray.get(group.ready(), timeout=PATIENCE_S)  # removed while it is prepared, it would leak its CPU
        assert not [name for name in placement_group_table(group) if "creator" in name or "actor" in name]
    finally:
        remove_placement_group(group)


@ray.remote(num_cpus=0)
class Reserving:
    """An actor that reserves a CPU, as Ray Train's controller does for its workers."""

    def reserve(self) -> Any:
        group = placement_group([{"CPU": 1}])
        ray.get(group.ready())
        return group


def test_only_what_a_dead_actor_reserved_is_abandoned(ray_cluster: None) -> None:
    """Groups of the driver and of a living actor are not listed; that of a killed one is, until it is removed."""
    from pipeline.ray_private import abandoned_placement_groups

    actor = Reserving.remote()
    of_actor, of_driver = ray.get(actor.reserve.remote(), timeout=PATIENCE_S), placement_group([{"CPU": 1}])
    try:
        ray.get(of_driver.ready(), timeout=PATIENCE_S)
        assert abandoned_placement_groups() == []
        ray.kill(actor)
        began_s = time.monotonic()
        while not (found := abandoned_placement_groups()):
            waited_s = time.monotonic() - began_s
            assert waited_s < PATIENCE_S, f"{CHANGED}a placement group does not say that its creator is dead"
            time.sleep(0.1)
        assert [group.id for group in found] == [of_actor.id]
    finally:
        remove_placement_group(of_actor)
        remove_placement_group(of_driver)
    assert abandoned_placement_groups() == []


def test_no_other_module_uses_private_parts_of_ray() -> None:
    """Private parts of Ray are imported in one place, so that one test file covers them."""
    private = re.compile(r"\bray\.(\w+\.)*_\w+|\bray\.core\b")
    folder = Path(__file__).parents[2]
    modules = [path for package in ("model", "pipeline", "workflows") for path in (folder / package).rglob("*.py")]
    assert len(modules) > 50
    using = [path.relative_to(folder).as_posix() for path in modules if private.search(path.read_text("utf-8"))]
    assert using == ["pipeline/ray_private.py"]
