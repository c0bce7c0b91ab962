"""pipeline.ray_private: Ray's internals exist and behave as expected."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.train.torch import TorchTrainer
from ray.util.placement_group import placement_group, remove_placement_group

PATIENCE_S = 30
CHANGED = f"Ray {ray.__version__} has changed a private part that pipeline/ray_private.py relies on: "


def kinds(trainer: TorchTrainer) -> list[str]:
    """Returns the class names of a trainer's default callbacks."""
    create = getattr(trainer, "_create_default_callbacks", None)
    assert create, f"{CHANGED}TorchTrainer._create_default_callbacks, which lean_torch_trainer overrides, is gone"
    return [type(callback).__name__ for callback in create()]


@pytest.mark.usefixtures("ray_cluster")
def test_lean_trainer_starts_without_the_two_processes() -> None:
    """Ray's trainer has both callbacks, ours all the others in the same order."""
    from pipeline.ray_private import lean_torch_trainer

    dropped = ["PlacementGroupCleanerCallback", "DatasetsCallback"]
    default = kinds(TorchTrainer(print))
    for name in dropped:
        assert name in default, f"{CHANGED}{name} is no longer a default callback; stop dropping it"
    assert kinds(lean_torch_trainer(print)) == [name for name in default if name not in dropped]


@ray.remote(num_cpus=0)
class Reserving:
    """An actor that reserves a CPU, like Ray Train's controller for its workers."""

    def reserve(self) -> Any:
        group = placement_group([{"CPU": 1}])
        ray.get(group.ready())
        return group


def test_only_what_a_dead_actor_reserved_is_abandoned(ray_cluster: None) -> None:
    """Groups of the driver and of live actors are not listed. A killed actor's is, until it is removed."""
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
    """Ray's internals are imported in one place, so one test file covers them."""
    private = re.compile(r"\bray\.(\w+\.)*_\w+|\bray\.core\b")
    folder = Path(__file__).parents[2]
    modules = [path for package in ("model", "pipeline", "workflows") for path in (folder / package).rglob("*.py")]
    assert len(modules) > 50
    using = [path.relative_to(folder).as_posix() for path in modules if private.search(path.read_text("utf-8"))]
    assert using == ["pipeline/ray_private.py"]
