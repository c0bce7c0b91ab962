"""Kills the processes of a workflow, one after another, at random moments by a seed."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import psutil

from tests.chaos.two_nodes import TwoNodes
from tests.chaos.workflow_process import Workflow

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
