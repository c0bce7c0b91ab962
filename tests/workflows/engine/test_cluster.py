"""workflows.engine.cluster: a stage's function in a separate process, and cleanup after killed actors."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from pipeline.ray_private import remove_abandoned_placement_groups
from workflows.engine.cluster import AHEAD, map_on_ray
from workflows.requirements import ROOT

PATIENCE_S = 30.0


def test_nodes_get_the_packages_and_no_folder_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_text("weights")
    code = "import json, model; from workflows.engine.cluster import shipped_packages as s; print(json.dumps(s()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    packages = [Path(folder) for folder in json.loads(done.stdout)["py_modules"]]
    assert packages == [ROOT / "model", ROOT / "pipeline", ROOT / "workflows"]
    assert all((folder / "__init__.py").is_file() for folder in packages)


class Reserving:
    """Reserves a CPU, like Ray Train's controller for its workers."""

    def reserve(self) -> PlacementGroup:
        group = placement_group([{"CPU": 1}])
        ray.get(group.ready())
        return group


def test_what_a_killed_actor_reserved_is_freed(ray_cluster: None) -> None:
    """What the driver reserved stays."""
    actor: Any = ray.remote(num_cpus=0)(Reserving).remote()
    group, of_driver = ray.get(actor.reserve.remote(), timeout=PATIENCE_S), placement_group([{"CPU": 1}])
    ray.get(of_driver.ready(), timeout=PATIENCE_S)
    remove_abandoned_placement_groups()
    assert placement_group_table(group)["state"] == "CREATED"
    ray.kill(actor)
    began_s = time.monotonic()
    while placement_group_table(group)["state"] != "REMOVED":
        remove_abandoned_placement_groups()
        assert time.monotonic() - began_s < PATIENCE_S
        time.sleep(0.1)
    assert placement_group_table(of_driver)["state"] == "CREATED"
    remove_placement_group(of_driver)


def test_a_map_takes_only_the_next_calls(ray_cluster: None) -> None:
    """So the arguments of all may be larger than memory."""
    taken = list[int]()
    results = map_on_ray(abs, ((taken.append(number) or number,) for number in range(50)))
    assert next(results) == 0
    assert len(taken) <= 2 * AHEAD + 1
    assert [*results] == [*range(1, 50)]
