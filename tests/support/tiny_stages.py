"""Small stages for tests of the DAG, which write real text files to disk and measure their lengths."""

import json
import logging
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import ray

from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.settings import Settings, not_in_fingerprint
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support.waiting import until
from workflows.engine.cluster import cluster
from workflows.engine.dag import Stage, Step
from workflows.engine.interface import Watcher
from workflows.engine.joining import loopback_only
from workflows.engine.runner import run


class Words(Artifact):
    @property
    def text(self) -> str:
        return (self.folder / "words.txt").read_text()


class WriteSettings(Settings):
    text: str
    workers: int = not_in_fingerprint(1)


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any = None


def written(context: Context, text: str) -> Words:
    (context.folder / "words.txt").write_text(text)
    return Words(context.folder)


def note(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def write(context: Context, settings: WriteSettings) -> Words:
    if settings.text == "bad":
        raise UserError("the text is bad; write another")
    context.progress(1, 1, "texts")
    return written(context, settings.text)


def tell_environment(context: Context, computes: bool) -> Words:
    """Writes its process's initial environment as JSON; `computes` distinguishes two such steps."""
    return written(context, json.dumps(psutil.Process().environ()))


def tell_gpus(context: Context) -> Words:
    return written(context, f"GPUs {ray.get_gpu_ids()}")


def length(text: str) -> int:
    return len(text)


def join(context: Context, pairs: list[Pair], log: Path) -> Words:
    note(log, "joined")
    texts = [words.text for pair in pairs for words in (pair.left, pair.right) if words]
    return written(context, f"{' '.join(texts)} {list(context.map(length, [(text,) for text in texts]))}")


def linger(context: Context, text: str, seconds: float, log: Path) -> Words:
    note(log, f"begins {text}")
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:  # Ray cancels between two calls, not within one
        time.sleep(min(seconds, 0.05))
    note(log, f"ends {text}")
    return written(context, text)


def fail_later(context: Context, seconds: float) -> Words:
    time.sleep(seconds)
    raise UserError("the text is bad; write another")


def meet(context: Context, text: str, log: Path, behind: tuple[Words, ...] = ()) -> Words:
    note(log, f"begins {text}")
    until(lambda: log.read_text().count("begins") >= 2, 60)
    note(log, f"ends {text}")
    return written(context, text)


def die_often(context: Context, log: Path, deaths: int) -> Words:
    """Kills its process at the first `deaths` calls. Each call adds a line."""
    note(log, "called")
    if len(log.read_text().splitlines()) <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return written(context, "alive")


def have_a_bug(context: Context, log: Path) -> Words:
    """Raises an error that is nobody's input, unless it is mended. Each call adds a line."""
    if log.exists() and log.read_text() == "mended":
        return written(context, "mended")
    note(log, "called")
    raise KeyError("paper_bleu")


def open_a_folder(context: Context, log: Path) -> Words:
    """Reads a folder as a file, which is a user error. Each call adds a line."""
    note(log, "called")
    log.parent.read_text()
    return Words(context.folder)


def work_or_fail(text: str, log: Path) -> None:
    """Fails on bad text once the other task runs. Otherwise works for ten minutes and logs its end."""
    ends, ending = time.monotonic() + 600, "stopped"
    while text == "bad":
        if log.exists():
            raise UserError("the text is bad; write another")
        time.sleep(0.05)
    log.touch()
    try:
        while time.monotonic() < ends:
            time.sleep(0.05)
        ending = "worked to the end"
    finally:
        log.write_text(ending)


def fail_in_a_task(context: Context, log: Path) -> Words:
    list(context.map(work_or_fail, [("good", log), ("bad", log)]))
    return Words(context.folder)


WRITE, JOIN = Stage("tiny_stages.write", write, Words), Stage("tiny_stages.join", join, Words)
LINGER = Stage("tiny_stages.linger", linger, Words)


def joined(log: Path, right: str = "b", workers: int = 1) -> Step[Words]:
    steps = [WRITE(name, WriteSettings(text=text, workers=workers)) for name, text in (("left", "a"), ("right", right))]
    return JOIN("join", [Pair(*steps), Pair(steps[0])], log)


def lingering(log: Path, seconds: float) -> Step[Words]:
    steps = [LINGER(f"linger {text}", text, seconds, log) for text in ("a", "b", "c")]
    return JOIN("join", [Pair(*steps[:2]), Pair(steps[2])], log)


class Waits(Watcher):
    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        if "waiting" in event:
            print(f"{step.label}: {event['waiting']}")


def drive(store: str, log: str) -> None:
    """Runs one of two drivers, which begin when both have joined Ray, and prints the result."""
    with cluster(None):
        Path(f"{log}.{os.getpid()}").touch()
        while len(list(Path(log).parent.glob("log.*"))) < 2:
            time.sleep(0.05)
        (words,) = run([lingering(Path(log), 2)], Store(Path(store).parent), [Waits()])
    print(words.text)


class Holder:
    def ready(self) -> None:
        """Returns once it holds it."""


class Release(Waits):
    """Stops the holder of a GPU as soon as a step reports that it waits."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        super().event(step, event)
        ray.kill(self._holder)


def drive_behind_a_gpu(store: str, _log: str) -> None:
    """Runs a step that needs a GPU in a cluster whose only one is held, and prints its GPUs."""
    with loopback_only():
        ray.init("local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
    holder: Any = ray.remote(num_cpus=0, num_gpus=1)(Holder).remote()
    ray.get(holder.ready.remote())
    step = Stage("tiny_stages.tell_gpus", tell_gpus, Words, gpus=1)("tell GPUs")
    (words,) = run([step], Store(Path(store).parent), [Release(holder)])
    print(words.text)


def shorten(text: str) -> str:
    logging.getLogger("pipeline.tiny_stages").warning("%s is cut to two letters", text)
    return text[:2]


def abridge(context: Context, texts: list[str]) -> Words:
    """Warns in its own process, then in its map's tasks and in a thread, in that order, and repeats the first."""
    logger = logging.getLogger("pipeline.tiny_stages")
    logger.warning("nobody has read the\ntext")
    logging.getLogger("a_library").warning("this is none of the project's")
    shortened = [next(iter(context.map(shorten, [(text,)]))) for text in texts]
    thread = Thread(target=logger.warning, args=("a thread has written it",))
    thread.start()
    thread.join()
    logger.warning("nobody has read the\ntext")
    return written(context, " ".join(shortened))


def quote_warnings(context: Context, abridged: list[Words]) -> Words:
    return written(context, "\n".join(context.warnings))
