"""Whatever process is killed at whatever moment, the same command gives the same bytes in the end.

    make chaos                                          # a new seed, 25 kills, about ten minutes
    AIAYN_CHAOS_SEED=7 AIAYN_CHAOS_KILLS=60 make chaos

Table 2 is made from generated text on a Ray cluster of two nodes, once undisturbed, then with SIGKILLs drawn from a
seed.
"""

import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from tests.chaos.comparison import differences, outcome
from tests.chaos.workflow_process import ROOT, Workflow
from tests.support.tiny_profile import command_of_table2
from workflows.engine.cluster import set_local_variables

CPUS = 2
"""CPUs of each node."""
HEALTH_CHECKS = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
"""The head gives up on a node after 3 s of silence instead of 15, so that more kills fit in the time."""
KILLS = 25
HUNG_S = 180
"""Time without a new file in the store, a kill or a start after which the workflow counts as hung."""
EXCUSED_S = 30
"""Time after a kill during which the driver may fail, because the cluster has not yet noticed the loss."""
POLL_S = 0.2
DELAY_S = 3, 12
"""Range of the minimum delay between two kills."""
RECOVERED = 3 / 4
"""The fraction of kills that wait for progress after the last kill; the others may hit its recovery."""
ABSENCE_S = 1, 5
"""Range of the time from the end of the second node to the start of a new one."""
DRIVER, SECOND_NODE = "driver", "raylet of the second node"
TITLES = {
    "preparation task": r"(generate|vocabulary|encode|report) .*|write_part|count_words",
    "task of another stage": r"(train|average|decode|perplexity|cost|score|substitute|table) .*",
    "controller of Ray Train": r"TrainController(\.\w+)?",
    "training worker": r"RayTrainWorker(\.\w+)?|single_worker",
    "decoding actor": r"DecodingWorker(\.\w+)?",
    "board of events": r"Board(\.\w+)?",
}
"""Patterns of the part after `ray::` in the title of a busy Ray process; a step's task has the step's label."""
KINDS = (DRIVER, SECOND_NODE, *TITLES)

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(7200)]


class TwoNodes:
    """A Ray cluster on this machine: the head stays alive; the second node can be killed and replaced."""

    def __init__(self) -> None:
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": CPUS, "include_dashboard": False, "_system_config": HEALTH_CHECKS},
        )
        self._seen: set[psutil.Process] = set()
        self.add_second()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def second(self) -> psutil.Process:
        return _raylet(self._second)

    def add_second(self) -> None:
        self._second = self._cluster.add_node(num_cpus=CPUS)

    def clear_second(self) -> None:
        self._cluster.remove_node(self._second, allow_graceful=False)

    def workers(self) -> list[psutil.Process]:
        """Returns the processes in which Ray runs tasks, actors and its own services, on both nodes."""
        found = []
        for node in self._cluster.list_all_nodes():
            with suppress(psutil.NoSuchProcess):
                found += _raylet(node).children(recursive=True)
        self._seen.update(found)
        return found

    def stop(self) -> None:
        self.workers()
        try:
            self._cluster.shutdown()
        finally:
            for process in self._seen:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def _raylet(node: Any) -> psutil.Process:
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    """Leaves Ray's logs in the test's folder.

    Its files are in a folder of their own, so no other `ray.init()` finds it. Ray ends the nodes along with the thread
    that started them, so this must be called in the main thread.
    """
    # The prefix is short because a socket's path has at most 107 bytes.
    folder = tempfile.mkdtemp(prefix="chaos-")
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            environment.delenv(name)
        environment.setenv("RAY_TMPDIR", folder)
        environment.setenv("PYTHONPATH", str(ROOT))
        environment.setenv("OMP_NUM_THREADS", "1")
        environment.delenv("MLFLOW_TRACKING_URI", raising=False)
        inherited = set(os.environ)
        set_local_variables()
        logging.getLogger("ray").setLevel(logging.ERROR)
        cluster = TwoNodes()
        try:
            yield cluster
        finally:
            cluster.stop()
            for name in set(os.environ) - inherited:
                del os.environ[name]
            for session in Path(folder).glob("ray/session_2*"):
                shutil.move(session / "logs", tmp_path / "ray-logs")
            shutil.rmtree(folder, ignore_errors=True)


class Killer:
    """Chooses each kill by the seed, the kills so far and the processes alive: of the kinds killed least, any process.

    It is done after `wanted` kills, with at least one of each kind.
    """

    def __init__(self, seed: int, wanted: int, nodes: TwoNodes) -> None:
        self.kills: Counter[str] = Counter()
        self._random, self._wanted, self._nodes = Random(seed), wanted, nodes
        self.begin()

    @property
    def done(self) -> bool:
        return self.kills.total() >= self._wanted and len(self.kills) == len(KINDS)

    def begin(self) -> None:
        self.last_s = time.monotonic()
        self._delay_s = self._random.uniform(*DELAY_S)
        self._waits = self._random.random() < RECOVERED

    def look(self, workflow: Workflow) -> None:
        recovered = not self._waits or workflow.progress_s > self.last_s
        if self.done or time.monotonic() < self.last_s + self._delay_s or not recovered:
            return
        alive = sorted(self._alive(workflow), key=lambda victim: (victim[0], victim[1].pid))
        fewest = min((self.kills[kind] for kind, _ in alive), default=0)
        victims = [(kind, process) for kind, process in alive if self.kills[kind] == fewest]
        if not victims:
            return
        kind, process = self._random.choice(victims)
        with suppress(psutil.NoSuchProcess):
            title = " ".join(process.cmdline())[:60]
            process.kill()
            self.kills[kind] += 1
            since_s = time.monotonic() - workflow.started_s
            print(f"kill {self.kills.total():2}, {since_s:5.1f} s after the driver began: {kind}, {title}", flush=True)
            if kind == SECOND_NODE:
                self._nodes.clear_second()
                time.sleep(self._random.uniform(*ABSENCE_S))
                self._nodes.add_second()
        self.begin()

    def _alive(self, workflow: Workflow) -> Iterator[tuple[str, psutil.Process]]:
        with suppress(psutil.NoSuchProcess):
            yield DRIVER, workflow.process
        yield SECOND_NODE, self._nodes.second
        for process in self._nodes.workers():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
                _, _, task = process.cmdline()[0].strip().partition("ray::")
                yield from ((kind, process) for kind, pattern in TITLES.items() if re.fullmatch(pattern, task))


def _completed(workflow: Workflow, killer: Killer | None = None) -> None:
    """Restarts the workflow until its table is made. Fails if it hangs, or ends with an error no kill explains."""
    workflow.start()
    if killer:
        killer.begin()
    try:
        while (status := workflow.status) != 0:
            now_s, killed_s = time.monotonic(), killer.last_s if killer else 0.0
            if status is not None:
                print(f"the driver ended, status {status}; the same command again", flush=True)
                excuse = killer and (status == -signal.SIGKILL or killed_s > min(workflow.started_s, now_s - EXCUSED_S))
                assert excuse, f"no kill explains this: {workflow.printed}"
                workflow.start()
            workflow.look()
            silent_s = now_s - max(workflow.progress_s, workflow.started_s, killed_s)
            assert silent_s < HUNG_S, f"no progress in {silent_s:.0f} s: {workflow.printed}"
            if killer:
                killer.look(workflow)
            time.sleep(POLL_S)
    finally:
        workflow.stop()


def test_a_workflow_killed_at_random_ends_as_if_nothing_had_happened(nodes: TwoNodes, tmp_path: Path) -> None:
    """Weights, Adam's moments, translations, curves and table are those of the undisturbed run."""
    seed = int(os.environ.get("AIAYN_CHAOS_SEED") or SystemRandom().randrange(1_000_000))
    wanted = int(os.environ.get("AIAYN_CHAOS_KILLS") or KILLS)
    print(f"AIAYN_CHAOS_SEED={seed} AIAYN_CHAOS_KILLS={wanted}; logs in {tmp_path}")
    undisturbed = Workflow(nodes.address, tmp_path / "undisturbed")
    _completed(undisturbed)
    expected = outcome(undisturbed.store)
    killer = Killer(seed, wanted, nodes)
    found: list[str] = []
    for run in count(1):
        workflow = Workflow(nodes.address, tmp_path / f"run-{run}")
        _completed(workflow, killer)
        found += [f"run {run}: {line}" for line in differences(expected, outcome(workflow.store))]
        print(f"run {run}: completed after {workflow.starts} starts, {len(found)} differences so far", flush=True)
        if killer.done:
            break
    for kind in KINDS:
        print(f"{killer.kills[kind]:3}  {kind}")
    assert not found, "\n".join(found)


def test_a_command_killed_again_and_again_at_its_start_ends_well(tmp_path: Path) -> None:
    """In its first seconds it makes MLflow's file and starts Ray. The driver alone is killed, after 1 to 10 seconds."""
    chance, command = Random(int(os.environ.get("AIAYN_CHAOS_SEED", "0"))), command_of_table2(tmp_path / "runs")
    for number in range(int(os.environ.get("AIAYN_CHAOS_KILLS", "10"))):
        after_s = chance.uniform(1, 10)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as driver:
            time.sleep(after_s)
            driver.send_signal(signal.SIGKILL)
            said = driver.communicate()[0]
        assert driver.returncode in (-signal.SIGKILL, 0), f"kill {number} after {after_s:.1f} s: {said}"
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "MLflow" not in done.stderr
