"""infra/, locks/, Makefile: Ray accepts the launcher's files, and every file has the pinned versions."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_the_locks_have_all_that_is_required_at_the_pinned_versions() -> None:
    """Each package with its wheels' hashes, and no index: pip's configuration may name a private one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(.+)", constraints, re.M)}
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "locks").glob("*.txt")))
    assert not re.sub(r"# Written by.*\n|[\w.-]+==[\w.]+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", "", text)
    locked = {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", text, re.M)}
    assert {name: pinned.get(name, version) for name, version in locked.items()} == locked
    found, waiting = set[str](), [Requirement(each) for each in project["dependencies"]]
    while waiting:
        package = waiting.pop()
        if str(package) not in found:
            found.add(str(package))
            needs = [Requirement(each) for each in requires(package.name) or ()]
            extras = [{"extra": extra} for extra in package.extras or [""]]
            waiting += [each for each in needs if not each.marker or any(map(each.marker.evaluate, extras))]
    assert {canonicalize_name(Requirement(each).name) for each in found} <= locked.keys()


@pytest.mark.parametrize(("build", "status"), [("cpu", 0), ("cuda", 0), ("gpu", 2)])
def test_make_installs_the_build_of_torch_asked_for(build: str, status: int) -> None:
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", f"TORCH={build}", ".venv/installed"]
    made = subprocess.run(command, cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""}, capture_output=True, text=True)
    assert (made.returncode, len(made.stderr.splitlines())) == (status, status // 2)
    assert ("download.pytorch.org" in made.stdout) == (build == "cpu" and sys.platform == "linux")


def test_the_commands_of_the_evidence_have_plans(tmp_path: Path) -> None:
    """Their rows, models and settings exist."""
    env = os.environ | {"PYTHON": sys.executable, "STORE": str(tmp_path), "OPTIONS": "--plan", "HARDWARE": "--gpu h100"}
    done = subprocess.run(["bash", INFRA / "evidence.sh"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stages to run") == 12
