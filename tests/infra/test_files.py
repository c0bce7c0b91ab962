"""infra/: Ray's schema accepts the launcher's files, and every file uses the project's pinned versions."""

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"


@pytest.mark.parametrize("name", ["onpremise.yaml", "aws.yaml"])
def test_ray_accepts_the_file_and_refuses_a_misspelt_one(name: str) -> None:
    """The validation of `ray up`, with Ray's defaults filled in, accepts the file and rejects an unknown key."""
    config: dict[str, Any] = yaml.safe_load((INFRA / name).read_text(encoding="utf-8"))
    validate_config(prepare_config(copy.deepcopy(config)))
    with pytest.raises(jsonschema.ValidationError):
        validate_config(prepare_config({**copy.deepcopy(config), "setup_comands": []}))


def test_versions_are_the_pinned_ones() -> None:
    """Image tags are the project's version, and KubeRay's Ray version is the pinned one."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    texts = {path.name: path.read_text(encoding="utf-8") for path in INFRA.iterdir()}
    tags = {name: set(re.findall(r"aiayn:(\d[\w.]*)", text)) for name, text in texts.items()}
    tagged = {"Dockerfile", "README.md", "compose.yaml", "kubernetes.yaml"}
    assert {name for name, found in tags.items() if found} == tagged
    assert set.union(*tags.values()) == {version}
    (ray,) = re.findall(r'rayVersion: "(.*)"', texts["kubernetes.yaml"])
    assert f"\nray=={ray}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
