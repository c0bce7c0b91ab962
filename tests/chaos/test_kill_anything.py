"""Whatever process is killed at whatever moment, the same command gives the same bytes in the end.

    make chaos                                          # a new seed, 25 kills, about ten minutes
    AIAYN_CHAOS_SEED=7 AIAYN_CHAOS_KILLS=60 make chaos

Table 2 is made from generated text on a Ray cluster of two nodes, once undisturbed, then with SIGKILLs drawn from a
seed.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.chaos.comparison import differences, outcome
from tests.chaos.killer import KINDS, Killer
from tests.chaos.two_nodes import TwoNodes, two_nodes
from tests.chaos.workflow_process import Workflow

KILLS = 25
HUNG_S = 180
"""Time without a new file in the store, a kill or a start after which the workflow counts as hung."""
EXCUSED_S = 30
"""Time after a kill during which the driver may fail, because the cluster has not yet noticed the loss."""
POLL_S = 0.2

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(7200)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    with two_nodes(tmp_path / "ray-logs") as cluster:
        yield cluster


def _completed(workflow: Workflow, killer: Killer | None = None) -> None:
    """Restarts the workflow until it has made its table.

    Fails if the workflow hangs, or ends with an error that no kill explains.
    """
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
    seed = int(os.environ.get("AIAYN_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
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
