"""A Ray cluster of two nodes on this machine: the head stays alive; the second node can be killed and replaced."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from workflows.engine.cluster import set_local_variables

ROOT = Path(__file__).parents[2]
CPUS = 2
"""CPUs of each node."""
HEALTH_CHECKS = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
"""The head gives up on a node after 3 s of silence instead of 15, so that more kills fit in the time."""


class TwoNodes:
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


@contextmanager
def two_nodes(logs: Path) -> Iterator[TwoNodes]:
    """Provides the cluster while the body runs, and leaves Ray's logs in `logs`.

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
        nodes = TwoNodes()
        try:
            yield nodes
        finally:
            nodes.stop()
            for name in set(os.environ) - inherited:
                del os.environ[name]
            for session in Path(folder).glob("ray/session_2*"):
                shutil.move(session / "logs", logs)
            shutil.rmtree(folder, ignore_errors=True)
