"""Whom a kill can hit, and who is hit: a function of the seed, the kills so far and the processes alive."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import psutil


class Kind(StrEnum):
    """What a process is to the workflow."""

    DRIVER = "driver"
    SECOND_NODE = "raylet of the second node"
    PREPARATION = "preparation task"
    STAGE = "task of another stage"
    CONTROLLER = "controller of Ray Train"
    TRAINING_WORKER = "training worker"
    DECODING_WORKER = "decoding actor"
    BOARD = "board of events"


TITLES = {
    Kind.PREPARATION: r"(generate|clean|vocabulary|encode|report) .*|write_shard|clean_shard|count_words|encode_shard",
    Kind.STAGE: r"(train|average|decode|perplexity|cost|score|substitute|table) .*",
    Kind.CONTROLLER: r"TrainController(\.\w+)?",
    Kind.TRAINING_WORKER: r"RayTrainWorker(\.\w+)?",
    Kind.DECODING_WORKER: r"DecodingWorker(\.\w+)?",
    Kind.BOARD: r"Board(\.\w+)?",
}
"""What follows `ray::` in the title that Ray gives a process at work; a step's task is named by the step's label."""


@dataclass(frozen=True)
class Victim:
    """A process that may be killed."""

    kind: Kind
    title: str
    process: psutil.Process

    @property
    def order(self) -> tuple[Kind, str, int]:
        """By which victims are sorted, whatever order the machine lists its processes in."""
        return self.kind, self.title, self.process.pid


def victims_among(workers: Iterable[psutil.Process]) -> list[Victim]:
    """Those of Ray's processes that work for the workflow at this moment, in order."""
    found = []
    for process in workers:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
            title = process.cmdline()[0].strip()
            kind = kind_of(title)
            if kind:
                found.append(Victim(kind, title.removeprefix("ray::"), process))
    return sorted(found, key=lambda victim: victim.order)


def kind_of(title: str) -> Kind | None:
    """What a process of this title is; None for an idle one and for Ray's own services."""
    task = title.removeprefix("ray::")
    if task == title:
        return None
    return next((kind for kind, pattern in TITLES.items() if re.fullmatch(pattern, task)), None)


def choose(random: Random, alive: Sequence[Victim], kills: Counter[Kind]) -> Victim:
    """One of `alive`: of the kinds with the fewest kills, each is as likely, then each process of the kind."""
    fewest = min(kills[victim.kind] for victim in alive)
    kind = random.choice(sorted({victim.kind for victim in alive if kills[victim.kind] == fewest}))
    return random.choice([victim for victim in alive if victim.kind == kind])


def doing(alive: Iterable[Victim]) -> str:
    """What the workflow is at, e.g. `train en-de base, train en-de big`."""
    stages = {victim.title for victim in alive if " " in victim.title}
    return ", ".join(sorted(stages)) or "nothing yet"
