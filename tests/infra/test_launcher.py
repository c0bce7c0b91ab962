"""infra/onpremise.yaml and infra/aws.yaml: Ray accepts them, and what they run exists."""

import copy
import shlex
from typing import Any

import jsonschema
import pytest
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.support.infra_files import PROJECT, copied_into_the_image, load, ray_options

FILES = ["onpremise.yaml", "aws.yaml"]
PHASES = ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands")


def prepared(config: dict[str, Any]) -> dict[str, Any]:
    """What `ray up` does with a file before it starts anything."""
    complete: dict[str, Any] = prepare_config(copy.deepcopy(config))
    validate_config(complete)
    return complete


def start_commands(config: dict[str, Any]) -> list[str]:
    """The commands that start Ray on the head and on the others."""
    commands = [c for phase in PHASES[1:] for c in config[phase] if "ray start" in c]
    assert len(commands) == 2
    return commands


@pytest.mark.parametrize("name", FILES)
def test_ray_accepts_the_file_and_refuses_a_misspelt_one(name: str) -> None:
    """Ray's own validator, with its defaults filled in."""
    config = load(name)
    prepared(config)
    with pytest.raises(jsonschema.ValidationError):
        prepared({**config, "setup_comands": []})


@pytest.mark.parametrize("name", FILES)
def test_ray_is_started_with_a_token_by_options_that_it_has(name: str) -> None:
    """One port for all, the dashboard on the loopback interface, all cores for training on CPUs."""
    head, worker = start_commands(load(name))
    options = []
    for command in (head, worker):
        *_, start = command.split(";")
        variable, *words = shlex.split(start)
        assert variable == "RAY_AUTH_MODE=token"
        assert "unset OMP_NUM_THREADS;" in command
        options.append(ray_options(words))
    assert options[0]["head"]
    assert options[0]["dashboard_host"] == "127.0.0.1"
    assert options[0]["autoscaling_config"] == "~/ray_bootstrap_config.yaml"
    assert options[1]["address"] == f"$RAY_HEAD_IP:{options[0]['port']}"
    assert load(name)["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


@pytest.mark.parametrize("name", FILES)
def test_the_project_is_installed_with_its_pinned_versions(name: str) -> None:
    """From the copied source, which is what the image is made of, into the environment from which Ray is started."""
    config = load(name)
    (install,) = [shlex.split(command) for command in config["setup_commands"] if "pip install" in command]
    (source,) = {remote.rpartition("/")[0] for remote in config["file_mounts"] if "auth_token" not in remote}
    sources = {remote: local for remote, local in config["file_mounts"].items() if "auth_token" not in remote}
    assert sources == {f"{source}/{name}": name for name in copied_into_the_image()}
    assert install[install.index("--constraint") + 1] == f"{source}/constraints.txt"
    assert install[-1].startswith(f"{source}[")
    assert install[-1].removeprefix(source).strip("[]") in PROJECT["optional-dependencies"]
    environment = install[0].removesuffix("pip")
    assert all(f"{environment}ray start" in command for command in start_commands(config))


def test_aws_machines_are_in_groups_of_the_users_own() -> None:
    """Otherwise Ray makes a security group that opens SSH to the world."""
    config = load("aws.yaml")
    assert all(kind["node_config"]["SecurityGroupIds"] for kind in config["available_node_types"].values())
    assert "security_group" not in config["provider"]
