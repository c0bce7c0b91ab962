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
from pathlib import Path

import pytest

from tests.chaos.comparison import differences, outcome
from tests.chaos.journal import Journal
from tests.chaos.killer import Killer
from tests.chaos.two_nodes import TwoNodes, two_nodes
from tests.chaos.victims import Kind
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


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "chaos.log")


def _completed(workflow: Workflow, journal: Journal, killer: Killer | None = None) -> int:
    """Restarts the workflow until it has made its table; returns how often it ended by itself before that.

    Fails if the workflow hangs, or ends with an error that no kill explains.
    """
    gave_up = 0
    workflow.start()
    if killer:
        killer.begin()
    try:
        while (status := workflow.status) != 0:
            now_s, killed_s = time.monotonic(), killer.last_s if killer else 0.0
            if status is not None:
                if not killer or status != -signal.SIGKILL:
                    gave_up += 1
                    journal(f"           the driver ended by itself, status {status}: {workflow.last_error}")
                    excused = killer and killed_s > min(workflow.started_s, now_s - EXCUSED_S)
                    assert excused, f"no kill explains this; {_where(workflow, journal)}"
                journal("           the same command again")
                workflow.start()
            workflow.look()
            silent_s = now_s - max(workflow.progress_s, workflow.started_s, killed_s)
            assert silent_s < HUNG_S, f"no progress in {silent_s:.0f} s; {_where(workflow, journal)}"
            if killer:
                killer.look(workflow)
            time.sleep(POLL_S)
    finally:
        workflow.stop()
    return gave_up


def _where(workflow: Workflow, journal: Journal) -> str:
    printed = workflow.log.read_text(errors="replace")[-3000:]
    return f"log {journal.path}; the driver printed, in {workflow.log}:\n{printed}"


def test_a_workflow_killed_at_random_ends_as_if_nothing_had_happened(
    nodes: TwoNodes, journal: Journal, tmp_path: Path
) -> None:
    """Weights, Adam's moments, translations, curves and table are those of the undisturbed run."""
    seed = int(os.environ.get("AIAYN_CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
    wanted = int(os.environ.get("AIAYN_CHAOS_KILLS") or KILLS)
    journal(f"AIAYN_CHAOS_SEED={seed} AIAYN_CHAOS_KILLS={wanted}; log {journal.path}")

    undisturbed = Workflow(nodes.address, tmp_path / "undisturbed")
    _completed(undisturbed, journal)
    expected = outcome(undisturbed.store)
    journal(f"undisturbed: {len(expected.steps)} stages, {expected.weights_bytes} bytes of weights")

    killer = Killer(seed, wanted, nodes, journal)
    runs = continuations = gave_up = weights_bytes = 0
    found: list[str] = []
    while not killer.done:
        runs += 1
        journal(f"run {runs}: a fresh store")
        workflow = Workflow(nodes.address, tmp_path / f"run-{runs}")
        gave_up += _completed(workflow, journal, killer)
        killer.restore()
        result = outcome(workflow.store)
        differing = differences(expected, result)
        continuations += workflow.starts - 1
        weights_bytes += result.weights_bytes
        found += [f"run {runs}: {line}" for line in differing]
        journal(f"run {runs}: completed after {workflow.starts} starts, {len(differing)} differences")
        for line in differing:
            journal(f"           {line}")

    journal(f"seed {seed}: {killer.kills.total()} kills in {journal.seconds:.0f} s")
    for kind in Kind:
        journal(f"  {killer.kills[kind]:3}  {kind}")
    journal(f"  {runs} runs, {continuations} continuations, {gave_up} of them after the driver had ended by itself")
    journal(f"  {weights_bytes} bytes of weights compared; differences: {len(found)}")
    assert not found, "\n".join(found)
