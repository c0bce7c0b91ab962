import re
from pathlib import Path

import pytest
import ray
from ray.train.torch import TorchTrainer

CHANGED = f"Ray {ray.__version__} has changed a private part that pipeline/ray_private.py relies on: "


def kinds(trainer: TorchTrainer) -> list[str]:
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


def test_no_other_module_uses_private_parts_of_ray() -> None:
    private = re.compile(r"\bray\.(\w+\.)*_\w+|\bray\.core\b")
    folder = Path(__file__).parents[2]
    modules = [path for package in ("model", "pipeline", "workflows") for path in (folder / package).rglob("*.py")]
    assert len(modules) > 50
    using = [path.relative_to(folder).as_posix() for path in modules if private.search(path.read_text("utf-8"))]
    assert using == ["pipeline/ray_private.py", "workflows/engine/joining.py"]
