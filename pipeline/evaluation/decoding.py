"""Translates an evaluation set with Ray actors that each load the model once (§6.1).

Each idle actor gets the next chunk of sentences, so a slow actor delays nothing. Every chunk fully occupies its actor,
and there are no more actors than chunks. Actors share a GPU, because one leaves it idle between the small steps of its
search. A dead actor is restarted and its chunk redone. The layout affects the time but not the results, except for the
last bits of sums: in bfloat16, near ties may be decided differently.

Only the actors import torch, not the stage that waits for them.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import ray
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.artifacts import Checkpoint, EvaluationSet, Hypotheses
from pipeline.context import Context
from pipeline.environment import worker_environment
from pipeline.errors import UserError
from pipeline.records import DecodingRecord
from pipeline.settings import DecodingSettings, Dtype
from pipeline.store.build import Build
from pipeline.text.lines import read_lines, write_lines
from pipeline.training.layout import lacking, listed, may_grow
from pipeline.warning_events import emitting_warnings

if TYPE_CHECKING:
    from pipeline.evaluation.translation import Translator

logger = logging.getLogger(__name__)

CHUNKS_PER_WORKER = 4
"""Enough for workers to finish at about the same time."""
CHUNK_SENTENCES = 500
"""Maximum chunk size beyond what fills a worker, so that a dead actor costs little."""
FULL_ROWS = {"cpu": 128, "cuda": 2048}
"""Hypotheses that fully occupy a device. A core decodes 128 at once as fast as 600; 64 take 1.15 times as long each, 32
take 1.6 times (base, float32). On a GPU about a batch; not yet measured."""
RESTARTS = 3
"""Maximum restarts of an actor, and retries of a chunk."""
ACTORS_PER_GPU = 4
"""By default; not yet measured. If fewer shares of the GPU are free, as many actors do all the work."""
PATIENCE_S = 60
"""Seconds without a result before a warning explains the wait."""


class Choice(Protocol):
    """An artifact that holds a chosen search."""

    @property
    def search(self) -> DecodingSettings:
        """The chosen search."""


class Chunk(NamedTuple):
    """A block of consecutive sentences."""

    first: int
    lines: Sequence[str]


class Translated(NamedTuple):
    """The translations of a chunk."""

    texts: list[str]
    n_tokens: int
    """Decoded tokens, END_ID included."""
    seconds: float
    dtype: str
    """The dtype of the computation."""


class DecodingWorker:
    """A translator in its own process, loaded by the first call, which raises if the model is bad."""

    def __init__(self, build: Build | None, emit: Callable[..., None], settings: DecodingSettings, device: str) -> None:
        self._build, self._emit, self._settings, self._device = build, emit, settings, device
        self._folder: Path | None = None
        self._translator: Translator | None = None

    def translate(self, model_folder: Path, lines: Sequence[str], settings: DecodingSettings) -> Translated:
        """Translates lines with a model and the search of `settings`. Without lines, only loads the model."""
        return emitting_warnings(self._emit, self._translate, model_folder, lines, settings)

    def _translate(self, model_folder: Path, lines: Sequence[str], settings: DecodingSettings) -> Translated:
        from pipeline.hardware import dtype_name

        translator = self._loaded(model_folder).with_settings(settings)
        started = time.perf_counter()
        translations = translator.translations(lines)
        seconds = time.perf_counter() - started
        n_tokens = sum(translation.n_tokens for translation in translations)
        texts = [translation.text for translation in translations]
        return Translated(texts, n_tokens, seconds, dtype_name(translator.dtype))

    def _loaded(self, folder: Path) -> "Translator":
        """Returns the translator of the model in `folder`, replacing any other, since memory may hold only one."""
        import torch

        from pipeline.evaluation.translation import Translator
        from pipeline.hardware import reserved_gpu

        if self._translator is None or folder != self._folder:
            self._translator = None
            torch.set_num_threads(self._settings.threads)
            device = reserved_gpu(self._device) if self._device == "cuda" else self._device
            self._translator = Translator(self._build.input(folder) if self._build else folder, self._settings, device)
            self._folder = folder
        return self._translator


def decode(
    context: Context,
    model: Checkpoint,
    text: EvaluationSet,
    settings: DecodingSettings,
    choice: Choice | None = None,
    translators: "Translators | None" = None,
) -> Hypotheses:
    """Translates an evaluation set: writes `<name>.<target language>`, one sentence a line.

    `choice` overrides beam, length penalty and maximum length. `translators` are shared between searches or models;
    without them, actors are started and stopped. Raises UserError if the model cannot be loaded, `settings.device` asks
    for a GPU and the cluster has none, or nodes compute in different dtypes.
    """
    settings = settings.searching_like(choice.search) if choice else settings
    sources = list(read_lines(text.source))
    texts, done = [""] * len(sources), 0
    seconds, tokens, dtypes = 0.0, 0, set()
    with nullcontext(translators) if translators else Translators(context, settings) as translating:
        for chunk, translated in translating.translated(model, sources, settings):
            texts[chunk.first : chunk.first + len(chunk.lines)] = translated.texts
            tokens += translated.n_tokens
            seconds += translated.seconds
            dtypes.add(translated.dtype)
            if len(dtypes) > 1:
                names = " and ".join(sorted(dtypes))
                raise UserError(f"the cluster's nodes compute in {names}; set decoding.dtype to one of them")
            done += len(chunk.lines)
            context.progress(done, len(sources), "sentences")
    hypotheses = Hypotheses(context.folder)
    write_lines(hypotheses.path(text), texts)
    return hypotheses.write(
        DecodingRecord(sentences=len(texts), seconds=seconds, tokens=tokens, settings=settings, dtype="".join(dtypes))
    )


class Actors(NamedTuple):
    """The layout of decoding actors."""

    device: str
    """torch device type: cpu or cuda."""
    workers: int
    gpu_share: float = 0.0
    """Share of a GPU that each actor reserves."""


def _actors(settings: DecodingSettings) -> Actors:
    """Returns as many actors as the settings say, or as fit; they wait for a GPU requested of an autoscaler."""
    if lack := lacking({"CPU": settings.threads}, ray.nodes()):
        raise UserError(f"decoding reserves {lack} of the Ray cluster; lower threads, or join a larger node")
    resources = ray.cluster_resources()
    n_gpus, n_cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
    if settings.device == "gpu" and not n_gpus:
        if may_grow(ray.nodes()):
            return Actors("cuda", settings.workers or 1, settings.gpu_share)
        raise UserError("device is gpu, but the Ray cluster has none; set device to cpu or join a node that has one")
    if settings.device != "cpu" and n_gpus:
        workers = settings.workers or n_gpus * ACTORS_PER_GPU
        return Actors("cuda", workers, min(settings.gpu_share, 1 / -(-workers // n_gpus)))
    return Actors("cpu", settings.workers or max(1, n_cpus // settings.threads))


def _dtype(settings: DecodingSettings, device: str) -> Dtype:
    """Returns one dtype for all actors: by default bfloat16 if every node whose CPUs may hold one gains by it.

    Actors of one node agree without being asked.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    nodes = [node["NodeID"] for node in alive if node["Resources"].get("CPU", 0) >= settings.threads]
    if settings.dtype != "auto" or device != "cpu" or len(nodes) < 2:
        return settings.dtype
    task = ray.remote(num_cpus=0)(_cpu_dtype)
    placed = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    found = ray.get([task.options(scheduling_strategy=on_node).remote() for on_node in placed])
    return "bfloat16" if {*found} == {"bfloat16"} else "float32"


def _cpu_dtype() -> str:
    from pipeline.hardware import compute_dtype, dtype_name

    return dtype_name(compute_dtype("cpu"))


def chunks(sources: Sequence[str], beam_size: int, device: str, workers: int) -> list[Chunk]:
    """Cuts the sentences into chunks that each fully occupy a worker (`FULL_ROWS`).

    Makes CHUNKS_PER_WORKER per worker, more if these would be long, and fewer if sentences are few.
    """
    total = len(sources)
    rounds = max(CHUNKS_PER_WORKER, -(-total // (CHUNK_SENTENCES * workers)))
    n_chunks = max(1, min(rounds * workers, total * beam_size // FULL_ROWS[device]))
    n_chunks -= n_chunks % workers if n_chunks > workers else 0  # the last round occupies all workers, too
    size = max(1, -(-total // n_chunks))
    return [Chunk(first, sources[first : first + size]) for first in range(0, total, size)]


class Translators:
    """Actors for any number of searches and models, since starting them takes seconds.

    All settings except the search are fixed by `settings`. Use as a context manager. Raises UserError like `decode`.
    """

    def __init__(self, context: Context, settings: DecodingSettings) -> None:
        self._layout, self._threads, self._emit = _actors(settings), settings.threads, context.emit
        actor_class: Any = ray.remote(DecodingWorker)
        options = actor_class.options(
            num_cpus=settings.threads,
            num_gpus=self._layout.gpu_share,
            max_restarts=RESTARTS,
            max_task_retries=RESTARTS,
            # A single thread needs no other CPU, and can use a process that Ray has ready.
            runtime_env={"env_vars": worker_environment()} if settings.threads > 1 else None,
        )
        dtype = _dtype(settings, self._layout.device)
        placed = settings.model_copy(update={"gpu_share": self._layout.gpu_share, "dtype": dtype})
        self._start = partial(options.remote, context.build, context.emit, placed, self._layout.device)
        self._actors: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors:
            ray.kill(actor)

    def translated(
        self, model: Checkpoint, sources: Sequence[str], settings: DecodingSettings
    ) -> Iterator[tuple[Chunk, Translated]]:
        """Yields each chunk with its translations by the search of `settings`, as they arrive."""
        waiting = chunks(sources, settings.beam_size, self._layout.device, self._layout.workers)[::-1]
        unfinished = len(waiting)
        while len(self._actors) < min(self._layout.workers, len(waiting)):
            self._actors.append(self._start())
        # An actor that the cluster has no room for yet gets no chunk before it answers.
        running: dict[Any, tuple[Any, Chunk | None]] = {
            actor.translate.remote(model.folder, [], settings): (actor, None) for actor in self._actors
        }
        while unfinished:
            ready, _ = ray.wait(list(running), timeout=PATIENCE_S)
            if not ready:
                n = len(running)
                workers = f"{n} decoding worker{'s' * (n > 1)}"
                if any(chunk for _, chunk in running.values()):
                    logger.warning("no result from %s for %d s", workers, PATIENCE_S)
                else:  # other work has their CPUs
                    each = {"CPU": self._threads, **({"GPU": self._layout.gpu_share} if self._layout.gpu_share else {})}
                    self._emit({"waiting": f"room for {workers} of {listed(each)}"})
            for reference in ready:
                actor, chunk = running.pop(reference)
                try:
                    result = ray.get(reference)
                except RayTaskError as error:
                    if isinstance(error.cause, UserError):
                        raise error.cause from None
                    raise
                if chunk is not None:
                    unfinished -= 1
                    yield chunk, result
                if waiting:
                    chunk = waiting.pop()
                    running[actor.translate.remote(model.folder, chunk.lines, settings)] = actor, chunk
