"""Finds the processes that can be killed, and chooses one by the seed, the kills so far and the processes alive."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import psutil


class Kind(StrEnum):
    """The role of a process in the workflow."""

    DRIVER = "driver"
    SECOND_NODE = "raylet of the second node"
    PREPARATION = "preparation task"
    STAGE = "task of another stage"
    CONTROLLER = "controller of Ray Train"
    TRAINING_WORKER = "training worker"
    DECODING_WORKER = "decoding actor"
    BOARD = "board of events"


TITLES = {
    Kind.PREPARATION: r"(generate|clean|vocabulary|encode|report) .*|write_part|count_words|write_encoded",
    Kind.STAGE: r"(train|average|decode|perplexity|cost|score|substitute|table) .*",
    Kind.CONTROLLER: r"TrainController(\.\w+)?",
    Kind.TRAINING_WORKER: r"RayTrainWorker(\.\w+)?|single_worker",
    Kind.DECODING_WORKER: r"DecodingWorker(\.\w+)?",
    Kind.BOARD: r"Board(\.\w+)?",
}
"""Patterns of the part after `ray::` in the title of a busy Ray process; a step's task has the step's label."""


@dataclass(frozen=True)
class Victim:
    """A process that may be killed."""

    kind: Kind
    title: str
    process: psutil.Process

    @property
    def order(self) -> tuple[Kind, str, int]:
        return self.kind, self.title, self.process.pid


def victims_among(workers: Iterable[psutil.Process]) -> list[Victim]:
    """Returns those of Ray's processes that are working for the workflow right now, in order."""
    found = []
    for process in workers:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
            title = process.cmdline()[0].strip()
            kind = kind_of(title)
            if kind:
                found.append(Victim(kind, title.removeprefix("ray::"), process))
    return sorted(found, key=lambda victim: victim.order)


def kind_of(title: str) -> Kind | None:
    """Returns the kind of process with this title; None if it is idle or one of Ray's own services."""
    task = title.removeprefix("ray::")
    if task == title:
        return None
    return next((kind for kind, pattern in TITLES.items() if re.fullmatch(pattern, task)), None)


def choose(random: Random, alive: Sequence[Victim], kills: Counter[Kind]) -> Victim:
    """Chooses one of `alive`: the kinds with the fewest kills are equally likely, and so are a kind's processes."""
    fewest = min(kills[victim.kind] for victim in alive)
    kind = random.choice(sorted({victim.kind for victim in alive if kills[victim.kind] == fewest}))
    return random.choice([victim for victim in alive if victim.kind == kind])


def doing(alive: Iterable[Victim]) -> str:
    """Names the steps that are running, e.g. `train en-de base, train en-de big`."""
    stages = {victim.title for victim in alive if " " in victim.title}
    return ", ".join(sorted(stages)) or "nothing yet"
