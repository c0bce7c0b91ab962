"""infra/: Ray's schema accepts the launcher's files, and every file uses the project's pinned versions."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"


@pytest.mark.parametrize("name", ["onpremise.yaml", "aws.yaml"])
def test_ray_accepts_the_file_and_refuses_a_misspelt_one(name: str) -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8"))
    config: dict[str, Any] = yaml.safe_load((INFRA / name).read_text(encoding="utf-8"))
    jsonschema.validate(config, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**config, "setup_comands": []}, schema)


def test_versions_are_the_pinned_ones() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    texts = {path.name: path.read_text(encoding="utf-8") for path in INFRA.iterdir()}
    tags = {name: set(re.findall(r"aiayn:(\d[\w.]*)", text)) for name, text in texts.items()}
    tagged = {"Dockerfile", "README.md", "compose.yaml", "kubernetes.yaml"}
    assert {name for name, found in tags.items() if found} == tagged
    assert set.union(*tags.values()) == {version}
    (ray,) = re.findall(r'rayVersion: "(.*)"', texts["kubernetes.yaml"])
    assert f"\nray=={ray}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
