"""Decoding of the test sets, or other splits, by Ray actors (§6.1), each holding the model once.

The sentences of all of them are dealt out in chunks to whichever actor is free, so a slow or late one delays nothing.
A dead actor is started again and its chunk redone. The layout decides the time taken, not the translations, but for
the last bits of a sum: in bfloat16 a near tie may fall out otherwise.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import RayTaskError

from pipeline.errors import UserError
from pipeline.evaluation.translation import Translation, Translator
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, Corpus, Hypotheses
from pipeline.text.lines import read_lines, write_lines

logger = logging.getLogger(__name__)

CHUNK_SENTENCES = 500
"""At most; enough to fill batches of one length, few enough that a dead actor costs little."""
RESTARTS = 3
"""Of one actor, and of one chunk."""
PATIENCE_S = 60
"""Without any news for so long, say what is being waited for."""


class Chunk(NamedTuple):
    """Neighbouring sentences of one test set."""

    test_set: str
    first: int
    lines: list[str]


class Translated(NamedTuple):
    """A chunk's translations."""

    translations: list[Translation]
    seconds: float
    dtype: str
    """What it was computed in."""


class DecodingWorker:
    """A translator in a process of its own, loaded by the first call so that a bad checkpoint is that call's error."""

    def __init__(self, checkpoint_folder: Path, settings: DecodingSettings, device: str) -> None:
        self._arguments = checkpoint_folder, settings, device
        torch.set_num_threads(settings.threads)

    @cached_property
    def _translator(self) -> Translator:
        return Translator(*self._arguments)

    def translate(self, lines: Sequence[str]) -> Translated:
        """The translations of lines; no lines: just gets ready."""
        translator = self._translator
        started = time.perf_counter()
        translations, dtype = translator.translations(lines), str(translator.dtype).removeprefix("torch.")
        return Translated(translations, time.perf_counter() - started, dtype)


def decode(
    context: Context,
    checkpoint: Checkpoint,
    corpus: Corpus,
    settings: DecodingSettings,
    splits: Sequence[str] | None = None,
) -> Hypotheses:
    """Translates `splits` of a corpus (its test sets): `<split>.<language>`, one sentence a line, and `decoding.json`.

    decoding.json: {"test_sets": {name: {"sentences", "seconds", "tokens"}}, "settings", "dtype"}; seconds are summed
    over workers, without loading; tokens are those decoded, END_ID counted. Raises UserError where the checkpoint is no
    good, the corpus has no test set, the cluster has no GPU and `settings.device` asks for one, or its nodes would not
    all compute in the same type.
    """
    splits = corpus.test_sets if splits is None else splits
    if not splits:
        raise UserError(f"{corpus.folder} has no test set, only {', '.join(corpus.splits)}; nothing to decode")
    sources = {
        name: list(chain.from_iterable(read_lines(shard.source) for shard in corpus.shards(name))) for name in splits
    }
    translations: dict[str, list[Translation]] = {name: [Translation("", 0)] * len(sources[name]) for name in sources}
    seconds = dict.fromkeys(sources, 0.0)
    total = sum(len(lines) for lines in sources.values())
    done, dtypes = 0, set()
    for chunk, translated in _on_actors(sources, checkpoint, settings):
        translations[chunk.test_set][chunk.first : chunk.first + len(chunk.lines)] = translated.translations
        seconds[chunk.test_set] += translated.seconds
        dtypes.add(translated.dtype)
        done += len(chunk.lines)
        context.progress(done, total, "sentences")
    if len(dtypes) > 1:
        found = " and ".join(sorted(dtypes))
        raise UserError(f"the cluster's nodes computed in {found}; set decoding.precision to one of them")
    hypotheses = Hypotheses(context.folder)
    language = corpus.languages[1]
    figures: dict[str, dict[str, Any]] = {}
    for name, lines in translations.items():
        write_lines(context.folder / f"{name}.{language}", (line.text for line in lines))
        tokens = sum(line.n_tokens for line in lines)
        figures[name] = {"sentences": len(lines), "seconds": seconds[name], "tokens": tokens}
    described = {"test_sets": figures, "settings": settings.model_dump(mode="json"), "dtype": "".join(dtypes)}
    hypotheses.write_json("decoding.json", described)
    return hypotheses


def _layout(settings: DecodingSettings) -> tuple[str, int]:
    """The torch device, and the number of actors that the cluster has room for unless the settings say one."""
    resources = ray.cluster_resources()
    n_gpus, n_cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
    if settings.device == "gpu" and not n_gpus:
        raise UserError("device is gpu, but the Ray cluster has none; set device to cpu or join a node that has one")
    if settings.device != "cpu" and n_gpus:
        return "cuda", settings.workers or n_gpus
    return "cpu", settings.workers or max(1, n_cpus // settings.threads)


def _chunks(sources: dict[str, list[str]], workers: int) -> list[Chunk]:
    """About four a worker, so that they end together."""
    total = sum(len(lines) for lines in sources.values())
    size = max(1, min(CHUNK_SENTENCES, total // (4 * workers) if workers > 1 else total))
    return [
        Chunk(name, first, lines[first : first + size])
        for name, lines in sources.items()
        for first in range(0, len(lines), size)
    ]


def _on_actors(
    sources: dict[str, list[str]], checkpoint: Checkpoint, settings: DecodingSettings
) -> Iterator[tuple[Chunk, Translated]]:
    """Each chunk with what `translate` gives for it, as they come; the actors live until the last."""
    device, workers = _layout(settings)
    chunks = _chunks(sources, workers)
    actor_class: Any = ray.remote(DecodingWorker)
    options = actor_class.options(
        num_cpus=settings.threads,
        num_gpus=1 if device == "cuda" else 0,
        max_restarts=RESTARTS,
        max_task_retries=RESTARTS,
    )
    waiting = list(reversed(chunks))
    actors = [options.remote(checkpoint.folder, settings, device) for _ in range(min(workers, len(chunks)))]
    # An actor the cluster has no room for yet gets no chunk before it answers.
    running: dict[Any, tuple[Any, Chunk | None]] = {actor.translate.remote([]): (actor, None) for actor in actors}
    unfinished = len(chunks)
    try:
        while unfinished:
            ready, _ = ray.wait(list(running), timeout=PATIENCE_S)
            if not ready:
                logger.warning(
                    "no news from %d decoding workers for %d s; each needs %d CPUs%s",
                    *(len(running), PATIENCE_S, settings.threads, " and a GPU" if device == "cuda" else ""),
                )
            for reference in ready:
                actor, chunk = running.pop(reference)
                result = ray.get(reference)
                if chunk is not None:
                    unfinished -= 1
                    yield chunk, result
                if waiting:
                    chunk = waiting.pop()
                    running[actor.translate.remote(chunk.lines)] = actor, chunk
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise
    finally:
        for actor in actors:
            ray.kill(actor)
