"""infra/compose.yaml: commands that exist, no secret, and nothing open to the world."""

import re
from typing import Any

import pytest
from ray._private import ray_constants

from tests.support.infra_files import INFRA, ROOT, load, ray_options

TEXT = (INFRA / "compose.yaml").read_text(encoding="utf-8")
COMPOSE = load("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODES = ["ray-head", "ray-worker", "driver"]
SECRET = re.compile(r"PASSWORD|TOKEN|SECRET|KEY")
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def words_of(service: str) -> list[str]:
    """A service's command where no variable is set."""
    return [VARIABLE.sub(lambda match: match[2] or "", word) for word in SERVICES[service]["command"]]


def test_ports_are_published_on_the_loopback_interface() -> None:
    """Ray's dashboard and MLflow; nothing else, and no other network."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"ray-head", "mlflow"}
    for port in [port for ports in published.values() for port in ports]:
        assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)
    assert all("network_mode" not in service and "privileged" not in service for service in SERVICES.values())
    assert COMPOSE["networks"]["database"] == {"internal": True}
    assert SERVICES["postgres"]["networks"] == ["database"]


def test_no_secret_is_written_down() -> None:
    """Each comes from the environment, and Compose stops where it is missing or empty."""
    secrets = {
        name: value
        for service in SERVICES.values()
        for name, value in service["environment"].items()
        if SECRET.search(name)
    }
    assert secrets.keys() == {"RAY_AUTH_TOKEN", "POSTGRES_PASSWORD", "PGPASSWORD"}
    for value in secrets.values():
        assert re.fullmatch(r"\$\{(RAY_AUTH_TOKEN|POSTGRES_PASSWORD):\?[^}]+\}", value)
    assert not re.search(r"://[^/@\s]*:[^/@\s]*@", TEXT), "a password in an address"
    assert "/infra/.env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", NODES)
def test_nodes_share_the_store_and_demand_a_token(name: str) -> None:
    """Without root's privileges, and with MLflow's server as it is called there."""
    service = SERVICES[name]
    assert (service["volumes"], service["networks"], service["cap_drop"]) == (["store:/shared"], ["ray"], ["ALL"])
    assert service["environment"]["RAY_AUTH_MODE"] == "token"
    assert service["environment"]["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"


def test_ray_is_started_by_options_that_it_has() -> None:
    """The workers and the driver join the head by its name and port."""
    head, worker = ray_options(words_of("ray-head")), ray_options(words_of("ray-worker"))
    assert head["head"]
    assert head["block"]
    assert worker["block"]
    address = f"ray-head:{head['port']}"
    assert worker["address"] == SERVICES["driver"]["environment"]["RAY_ADDRESS"] == address
    assert f"127.0.0.1:{ray_constants.DEFAULT_DASHBOARD_PORT}/" in SERVICES["ray-head"]["healthcheck"]["test"][-1]
    agent = f"127.0.0.1:{ray_constants.DEFAULT_DASHBOARD_AGENT_LISTEN_PORT}/"
    assert agent in SERVICES["ray-worker"]["healthcheck"]["test"][-1]


def test_mlflow_is_started_by_options_that_it_has() -> None:
    """On PostgreSQL, with artifacts served, and for the names by which it is called."""
    from mlflow.cli import cli

    name, command, *arguments = words_of("mlflow")
    assert name == "mlflow"
    options = cli.commands[command].make_context(command, arguments).params
    assert options["serve_artifacts"]
    hosts = {f"mlflow:{options['port']}", f"localhost:{options['port']}", f"127.0.0.1:{options['port']}"}
    assert set(options["allowed_hosts"].split(",")) == hosts
    (mount,) = SERVICES["mlflow"]["volumes"]
    assert options["artifacts_destination"].startswith(f"{mount.partition(':')[2]}/")
    (address,) = [p.envvar for p in cli.commands[command].params if p.name == "backend_store_uri"]
    database = SERVICES["postgres"]["environment"]
    wanted = f"postgresql+psycopg2://{database['POSTGRES_USER']}@postgres:5432/{database['POSTGRES_DB']}"
    assert SERVICES["mlflow"]["environment"][address] == wanted
