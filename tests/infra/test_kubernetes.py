"""infra/kubernetes: fields that KubeRay has, one image, the pinned Ray, a token everywhere, a store on every node."""

import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.infra_files import INFRA, PINNED, PROJECT, load, ray_options
from tests.support.named_commands import module_command, parsed
from workflows.profiles import load_profile

FILES = sorted(path.relative_to(INFRA).as_posix() for path in (INFRA / "kubernetes").glob("*"))
SCHEMA = json.loads((Path(__file__).parent / "kuberay_schema.json").read_text(encoding="utf-8"))
CLUSTERS = {
    "RayCluster": load("kubernetes/raycluster.yaml")["spec"],
    "RayJob": load("kubernetes/rayjob.yaml")["spec"]["rayClusterSpec"],
}


def ray_pods(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods of Ray's nodes, the head first."""
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def all_pods() -> list[dict[str, Any]]:
    """The pods of Ray's nodes, and the one that submits the job."""
    submitter = load("kubernetes/rayjob.yaml")["spec"]["submitterPodTemplate"]["spec"]
    return [*(pod for cluster in CLUSTERS.values() for pod in ray_pods(cluster)), submitter]


def containers() -> list[dict[str, Any]]:
    """The containers of all pods."""
    return [container for pod in all_pods() for container in pod["containers"]]


@pytest.mark.parametrize("name", FILES)
def test_each_manifest_has_the_fields_that_exist(name: str) -> None:
    """No other field, and each of its type."""
    (document,) = yaml.safe_load_all((INFRA / name).read_text(encoding="utf-8"))
    jsonschema.validate(document, SCHEMA)


def test_one_image_and_the_pinned_versions() -> None:
    """The image carries the project's version; the Ray in it is the one that the manifests name."""
    (image,) = {container["image"] for container in containers()}
    assert image.endswith(f"/aiayn:{PROJECT['version']}")
    assert {cluster["rayVersion"] for cluster in CLUSTERS.values()} == {PINNED["ray"]}


def test_the_job_runs_a_command_of_the_project() -> None:
    """Its options exist, and so does its profile; its store is on a volume that every node of Ray mounts."""
    words = module_command(shlex.split(load("kubernetes/rayjob.yaml")["spec"]["entrypoint"]))
    options = parsed(words)
    assert options["address"] == "auto"
    load_profile(options["profile"], data=None, files=[], config=None, overrides=[])
    for pod in ray_pods(CLUSTERS["RayJob"]):
        (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "store"]
        assert Path(options["store"]).is_relative_to(mount["mountPath"])


def test_every_container_demands_and_knows_the_token() -> None:
    """From the Secret that the operator uses, never written down."""
    for cluster in CLUSTERS.values():
        assert cluster["authOptions"]["secretName"] == "aiayn-ray-token"
    for container in containers():
        variables = {variable["name"]: variable for variable in container["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == "token"
        secret = variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
        assert secret == {"name": "aiayn-ray-token", "key": "auth_token"}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_ray_gets_options_that_it_has(kind: str) -> None:
    """KubeRay makes options of `ray start` from them."""
    groups = [CLUSTERS[kind]["headGroupSpec"], *CLUSTERS[kind]["workerGroupSpecs"]]
    for group in groups:
        ray_options(["ray", "start", *(f"--{name}={value}" for name, value in group["rayStartParams"].items())])
