"""Kills the processes of a workflow, one after another, at random moments by a seed."""

import time
from collections import Counter
from contextlib import suppress
from random import Random

import psutil

from tests.chaos.journal import Journal
from tests.chaos.two_nodes import TwoNodes
from tests.chaos.victims import Kind, Victim, choose, doing, victims_among
from tests.chaos.workflow_process import Workflow

DELAY_S = 3, 12
"""Range of the minimum delay between two kills."""
RECOVERED = 3 / 4
"""The fraction of kills that wait for progress after the last kill; the others may hit its recovery."""
ABSENCE_S = 1, 5
"""Range of the time from the end of the second node to the start of a new one."""


class Killer:
    """Chooses kill number n and its moment by the seed, n, the kills so far and the processes alive, and nothing else.

    It is done after `wanted` kills, with at least one of each kind; any kills beyond `wanted` are of kinds that had
    none.
    """

    def __init__(self, seed: int, wanted: int, nodes: TwoNodes, journal: Journal) -> None:
        self.kills: Counter[Kind] = Counter()
        self._seed, self._wanted, self._nodes, self._journal = seed, wanted, nodes, journal
        self._node_due_s: float | None = None
        self.last_s = time.monotonic()
        self._draw()

    @property
    def done(self) -> bool:
        return self.kills.total() >= self._wanted and not self._spared

    @property
    def _spared(self) -> set[Kind]:
        return {kind for kind in Kind if not self.kills[kind]}

    def begin(self) -> None:
        """Restarts the delay before the next kill, when a workflow starts."""
        self.last_s = time.monotonic()

    def look(self, workflow: Workflow) -> None:
        """Restores the second node or kills a process, if it is time."""
        now_s = time.monotonic()
        if self._node_due_s is not None and now_s >= self._node_due_s:
            self.restore()
        recovered = not self._waits or workflow.progress_s > self.last_s
        if self.done or now_s < self.last_s + self._delay_s or not recovered:
            return
        alive = self._alive(workflow)
        allowed = [v for v in alive if self.kills.total() < self._wanted or v.kind in self._spared]
        if allowed:
            self._kill(choose(self._random, allowed, self.kills), doing(alive), workflow)
            self.last_s = time.monotonic()
            self._draw()

    def restore(self) -> None:
        if self._node_due_s is not None:
            self._node_due_s = None
            self._nodes.add_second()
            self._journal("           a new second node")

    def _draw(self) -> None:
        self._random = Random(f"{self._seed} {self.kills.total() + 1}")
        self._delay_s = self._random.uniform(*DELAY_S)
        self._waits = self._random.random() < RECOVERED
        self._absence_s = self._random.uniform(*ABSENCE_S)

    def _alive(self, workflow: Workflow) -> list[Victim]:
        alive = victims_among(self._nodes.workers())
        with suppress(psutil.NoSuchProcess):
            alive.append(Victim(Kind.DRIVER, "driver", workflow.process))
        if second := self._nodes.second:
            alive.append(Victim(Kind.SECOND_NODE, "raylet", second))
        return alive

    def _kill(self, victim: Victim, at: str, workflow: Workflow) -> None:
        try:
            victim.process.kill()
        except psutil.NoSuchProcess:  # it ended by itself a moment ago, so this is not a kill
            return
        self.kills[victim.kind] += 1
        number = f"kill {self.kills.total():2}/{self._wanted}"
        since_s = time.monotonic() - workflow.started_s
        self._journal(
            f"{number}  {victim.kind:<25} pid {victim.process.pid:<7} {victim.title:<22} "
            f"{since_s:5.1f} s after the driver's start, at: {at}"
        )
        if victim.kind is Kind.SECOND_NODE:
            self._nodes.clear_second()
            self._node_due_s = time.monotonic() + self._absence_s
