"""infra/compose.yaml by the commands of infra/README.md: a table in MLflow on PostgreSQL, despite killed containers."""

import json
import shlex
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.infra.clusters import ROOT, SMALL, TIMEOUT_S, Terminal, kill, podman, requires_clusters, succeeds, typed
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, requires_clusters, pytest.mark.timeout(4 * TIMEOUT_S)]


def finished_runs() -> list[str]:
    """The names of the finished runs on MLflow's server, read through the port that a browser uses."""
    request = urllib.request.Request(
        "http://127.0.0.1:5000/api/2.0/mlflow/runs/search",
        data=json.dumps({"experiment_ids": ["1"]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    runs = json.load(urllib.request.urlopen(request, timeout=TIMEOUT_S))["runs"]
    return sorted(run["info"]["run_name"] for run in runs if run["info"]["status"] == "FINISHED")


def ready() -> bool:
    status = ["exec", "aiayn_ray-head_1", "sh", "-c", "ray status | grep -q '/2.0 CPU'"]
    return succeeds(status) and _answers("http://127.0.0.1:5000/health")


def _answers(url: str) -> bool:
    with suppress(OSError):
        return urllib.request.urlopen(url, timeout=10).status == 200
    return False


def test_the_typed_commands_go_on_whatever_is_killed(tmp_path: Path) -> None:
    """One training run survives a killed worker, head and MLflow server, and `down` and `up` lose nothing."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    into, secret, up, table, down = typed("Containers on one machine")
    terminal = Terminal(clone / into.removeprefix("cd "), CPUS_PER_NODE="1")
    command = f"{table} {shlex.join(SMALL)}".replace(" exec ", " exec -T ")  # there is no terminal here
    terminal.run(secret)
    try:
        terminal.run(up)
        until(ready, TIMEOUT_S, lambda: podman("ps", "--all"))
        first = terminal.start(command)
        terminal.reach(120, first)
        kill("aiayn_ray-worker_1")
        terminal.reach(600, first)
        kill("aiayn_ray-head_1")
        assert first.wait(TIMEOUT_S) != 0
        until(ready, TIMEOUT_S, lambda: podman("ps", "--all"))

        second = terminal.start(command)
        terminal.reach(900, second)
        kill("aiayn_mlflow_1")
        assert second.wait(TIMEOUT_S) == 0, terminal.printed
        assert "7 stages to run" in terminal.printed, "the stages before the training run must come from the store"
        assert "update 300 " not in terminal.printed, "the run must resume from a checkpoint"
        until(ready, TIMEOUT_S, lambda: podman("ps", "--all"))

        terminal.run(down)
        terminal.run(up)
        until(ready, TIMEOUT_S, lambda: podman("ps", "--all"))
        assert "stages to run" not in terminal.run(command)
        assert finished_runs() == ["en-de base", "table2 embedded"]
    finally:
        terminal.start(f"{down} --volumes").wait(TIMEOUT_S)
