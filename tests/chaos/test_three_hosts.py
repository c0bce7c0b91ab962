"""Table 2 on a Ray cluster of three hosts, of which none has the project and one is lost in mid-training.

The workers get the packages from the command that joins the cluster. Run by `make test-slow`; needs root, for network
namespaces.
"""

import json
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.comparison import differences, outcome
from tests.chaos.hosts import PYTHON, Host, can_make_hosts, hosts
from tests.chaos.workflow_process import SETTINGS, TRAINING

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not can_make_hosts(), reason="needs Linux, root and iproute2"),
]

WORKERS, CPUS, PORT = 8, 5, 6399
"""Three hosts hold 15 workers; without one, the other two still hold all 8."""
START_S, END_S = 120, 900
OURS = {**TRAINING, "updates": 60, "micro_batches": WORKERS, "workers": WORKERS, "checkpoint_updates": 5}
WHOLE = {
    **{name: value for name, value in SETTINGS.items() if not name.startswith("recipes.")},
    **{f"recipes.base.training.{name}": value for name, value in OURS.items()},
}


class Nodes:
    """A head and two further nodes of Ray, which demand a token."""

    def __init__(self, made: list[Host], folder: Path) -> None:
        self.hosts, self._folder = made, folder
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.variables = {**made[0].variables, **token, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        self.address = f"{made[0].address}:{PORT}"
        for host in made:
            self._start(host)

    def _start(self, host: Host) -> None:
        where = ["--head", f"--port={PORT}"] if host is self.hosts[0] else [f"--address={self.address}"]
        command = [PYTHON, "-m", "ray.scripts.scripts", "start", "--block", *where, "--disable-usage-stats"]
        command += [f"--node-ip-address={host.address}", f"--num-cpus={CPUS}", "--object-store-memory=100000000"]
        command += ["--include-dashboard=False"] if host is self.hosts[0] else []
        log = self._folder / f"{host.name}.log"
        temporary = {"RAY_TMPDIR": str(self._folder)}
        process = host.start(command, log, self.variables | temporary)
        end_s = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end_s, log.read_text()
            time.sleep(0.2)

    def workflow(self, store: Path) -> "Workflow":
        """Starts Table 2 on the head's host, as a user there does."""
        command = [sys.executable, "-m", "workflows.reproduce_table2", "--pairs", "en-de", "--models", "base"]
        command += ["--address", self.address, "--store", str(store)]
        command += [word for name, value in WHOLE.items() for word in ("--set", f"{name}={json.dumps(value)}")]
        variables = {name: value for name, value in self.variables.items() if name != "PYTHONPATH"}
        store.mkdir()
        return Workflow(self.hosts[0], command, store, variables)


class Workflow:
    """The command, running."""

    def __init__(self, host: Host, command: list[str], store: Path, variables: dict[str, str]) -> None:
        self.store, self.log = store, store / "log"
        self._process = host.start(command, self.log, variables, sees_project=True)

    def wait_for(self, updates: int) -> None:
        """Waits until the training has a checkpoint of this many updates."""
        self._wait(lambda: any(step >= updates for step in self.checkpoints()), f"no checkpoint of {updates}")
        assert self._process.poll() is None, self.log.read_text()

    def checkpoints(self) -> set[int]:
        """Returns the updates of the checkpoints there are."""
        found = (re.search(r"(\d+)$", path.name) for path in (self.store / "store").glob("**/checkpoints/*"))
        return {int(match[1]) for match in found if match}

    def finish(self) -> None:
        """Waits for the end of the command."""
        self._wait(lambda: self._process.poll() is not None, "it goes on and on")
        assert self._process.returncode == 0, self.log.read_text()

    def _wait(self, done: Callable[[], bool], otherwise: str) -> None:
        end_s = time.monotonic() + END_S
        while not done() and self._process.poll() is None:
            assert time.monotonic() < end_s, f"{otherwise}:\n{self.log.read_text()}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """The cluster; all its processes end with the module."""
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))  # pytest's temporary paths are too long for sockets
    try:
        with hosts(3, folder) as made:
            yield Nodes(made, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_the_hosts_do_not_have_the_project(nodes: Nodes, tmp_path: Path) -> None:
    """What the other tests show would be worth nothing otherwise."""
    for package in ("ray", "workflows"):
        log = tmp_path / package
        asked = nodes.hosts[1].start([PYTHON, "-c", f"import {package}"], log, nodes.variables)
        assert (asked.wait(START_S) == 0) == (package == "ray"), log.read_text()


def test_a_lost_host_changes_no_weight(nodes: Nodes, tmp_path: Path) -> None:
    """Eight workers train on three hosts; one host is lost, two go on: every file is that of the undisturbed run."""
    undisturbed = nodes.workflow(tmp_path / "undisturbed")
    undisturbed.finish()
    disturbed = nodes.workflow(tmp_path / "disturbed")
    disturbed.wait_for(20)
    lost = next(host for host in nodes.hosts[1:] if _trains(host))
    lost.power_off()
    disturbed.finish()
    assert max(disturbed.checkpoints()) == OURS["updates"]
    assert differences(outcome(undisturbed.store), outcome(disturbed.store)) == []


def _trains(host: Host) -> bool:
    """Says whether a training worker runs on the host."""
    return any("RayTrainWorker" in " ".join(process.cmdline()) for process in host.processes())
