"""Table 2 on a Ray cluster of three hosts, of which none has the project and one is lost in mid-training.

The workers get the packages from the command that joins the cluster, and share either a disk or an S3 server. Run by
`make test-slow`; needs root, for network namespaces.
"""

import json
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.comparison import differences, outcome
from tests.chaos.hosts import PYTHON, Host, can_make_hosts, hosts
from tests.chaos.workflow_process import SETTINGS, TRAINING
from tests.support.s3_server import CREDENTIALS
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not can_make_hosts(), reason="needs Linux, root and iproute2"),
]

WORKERS, CPUS, PORT, S3_PORT = 8, 5, 6399, 5599
"""Three hosts hold 15 workers; without one, the other two still hold all 8."""
START_S, END_S = 120, 900
OURS = {**TRAINING, "updates": 60, "budget_tokens": 2400, "workers": WORKERS, "checkpoint_updates": 5}
WHOLE = {
    **{name: value for name, value in SETTINGS.items() if not name.startswith("recipes.")},
    **{f"recipes.base.training.{name}": value for name, value in OURS.items()},
}


class Nodes:
    """A head and two further nodes of Ray, which demand a token."""

    def __init__(self, made: list[Host], folder: Path) -> None:
        self.hosts, self._folder = made, folder
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        s3 = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{made[0].address}:{S3_PORT}"}
        self.variables = {**made[0].variables, **token, **s3, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
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
        process = host.start(command, log, self.variables | temporary | {"AIAYN_CACHE": str(self.cache(host))})
        until(lambda: "Ray runtime started" in log.read_text(), START_S, log.read_text, process)

    def cache(self, host: Host) -> Path:
        return self._folder / f"cache-{host.name}"

    def bucket(self) -> str:
        head, log = self.hosts[0], self._folder / "s3.log"
        server = [sys.executable, "-m", "moto.server", "-H", head.address, "-p", str(S3_PORT)]
        head.start(server, log, self.variables, sees_project=True)
        make = (
            "import time, urllib.request as r\n"
            f"request = r.Request('{self.variables['AWS_ENDPOINT_URL']}/aiayn', method='PUT')\n"
            "for _ in range(60):\n"
            "    try: r.urlopen(request); break\n"
            "    except OSError: time.sleep(1)\n"
        )
        assert head.start([PYTHON, "-c", make], self._folder / "make.log", self.variables).wait(START_S) == 0
        return "s3://aiayn/runs"

    def fetched(self, uri: str) -> Path:
        fetch = (
            "from pipeline.store.store import Store\n"
            f"store = Store.at({uri!r})\n"
            "names = [name for name in store.bucket.folders('store') if store.find(name)]\n"
            "print([store.fetch(name) for name in names] and store.root)"
        )
        log = self._folder / "fetch.log"
        variables = self.variables | {"AIAYN_CACHE": str(self.cache(self.hosts[0]))}
        del variables["PYTHONPATH"]
        fetching = self.hosts[0].start([sys.executable, "-c", fetch], log, variables, sees_project=True)
        assert fetching.wait(END_S) == 0, log.read_text()
        return Path(log.read_text().strip().split("\n")[-1])

    def workflow(self, store: Path, uri: str = "") -> "Workflow":
        command = [sys.executable, "-m", "workflows.reproduce_table2", "--pairs", "en-de", "--models", "base"]
        command += ["--dev-bleu", "--address", self.address, "--store", uri or str(store)]
        command += [word for name, value in WHOLE.items() for word in ("--set", f"{name}={json.dumps(value)}")]
        variables = {name: value for name, value in self.variables.items() if name != "PYTHONPATH"}
        variables["AIAYN_CACHE"] = str(self.cache(self.hosts[0]))
        store.mkdir()
        seen = [self.cache(host) for host in self.hosts] if uri else [store]
        return Workflow(self.hosts[0], command, store, variables, seen)


class Workflow:
    def __init__(
        self, host: Host, command: list[str], store: Path, variables: dict[str, str], seen: list[Path]
    ) -> None:
        self.store, self.log, self._seen = store, store / "log", seen
        self._process = host.start(command, self.log, variables, sees_project=True)

    def wait_for_checkpoint(self) -> None:
        self._wait(lambda: bool(self.checkpoints()), "no checkpoint")
        assert self._process.poll() is None, self.log.read_text()

    def checkpoints(self) -> set[int]:
        kept = partial(glob, "**/store/*/recovery/*", recursive=True, include_hidden=True)  # unlike Path's: folders go
        found = (re.search(r"(\d+)$", path) for folder in self._seen for path in kept(root_dir=folder))
        return {int(match[1]) for match in found if match}

    def finish(self) -> None:
        self._wait(lambda: self._process.poll() is not None, "it goes on and on")
        assert self._process.returncode == 0, self.log.read_text()

    def _wait(self, done: Callable[[], bool], reason: str) -> None:
        until(lambda: done() or self._process.poll() is not None, END_S, lambda: f"{reason}:\n{self.log.read_text()}")


@contextmanager
def three_nodes() -> Iterator[Nodes]:
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))  # pytest's temporary paths are too long for sockets
    try:
        with hosts(3, folder) as made:
            yield Nodes(made, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with three_nodes() as started:
        yield started


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    with three_nodes() as started:
        workflow = started.workflow(tmp_path_factory.mktemp("undisturbed") / "runs")
        workflow.finish()
        return outcome(workflow.store)


def test_the_hosts_do_not_have_the_project(nodes: Nodes, tmp_path: Path) -> None:
    """Otherwise the other tests would prove nothing."""
    for package in ("ray", "workflows"):
        log = tmp_path / package
        asked = nodes.hosts[1].start([PYTHON, "-c", f"import {package}"], log, nodes.variables)
        assert (asked.wait(START_S) == 0) == (package == "ray"), log.read_text()


@pytest.mark.parametrize("shared", ["disk", "bucket"])
def test_a_lost_host_is_no_loss(nodes: Nodes, undisturbed: dict[str, list[Any]], tmp_path: Path, shared: str) -> None:
    """Eight workers train on three hosts; one host is lost, two go on: every file is that of the undisturbed run.

    With a bucket, each host has a folder of its own, and nothing in it is seen by the others.
    """
    uri = nodes.bucket() if shared == "bucket" else ""
    disturbed = nodes.workflow(tmp_path / "disturbed", uri)
    disturbed.wait_for_checkpoint()
    next(host for host in nodes.hosts[1:] if _trains(host)).power_off()
    disturbed.finish()
    assert max(disturbed.checkpoints()) == OURS["updates"]
    assert differences(undisturbed, outcome(nodes.fetched(uri) if uri else disturbed.store)) == []


def _trains(host: Host) -> bool:
    return any("RayTrainWorker" in " ".join(process.cmdline()) for process in host.processes())
