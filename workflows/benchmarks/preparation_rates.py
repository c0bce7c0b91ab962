"""The measurements of `aiayn bench prepare`: how fast, and in how much memory, the DAG prepares WMT14-like text."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.corpora.files import FilePair, FilesSettings
from pipeline.corpora.synthetic.text import write_text
from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import Shard
from pipeline.store.store import LocalStore
from pipeline.text.lines import read_lines
from pipeline.text.vocabulary import load
from workflows import stages
from workflows.benchmarks.processes import ContenderProcess
from workflows.benchmarks.single_core import SingleCoreCost
from workflows.engine import runner
from workflows.engine.cluster import cluster, map_on_ray
from workflows.engine.dag import Step, in_order
from workflows.engine.events import Watcher
from workflows.profiles import WMT14

PAIR = "en-de"
PAIRS_PER_FILE = 250_000
HELD_OUT_PAIRS = 1000
BYTES_PER_PAIR = 1200
"""Disk space that a pair takes: its text as generated, as read and as cleaned, and its token ids."""
BARE_SHARDS = 4
"""Shards that each core encodes with sentencepiece alone."""


class ProgressLine(Watcher):
    """Shows which stage is running and how far it has got."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self._show = show

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Shows the progress that `event` reports."""
        if "total" in event:
            self._show(f"{step.label}: {event['done']:.0f} of {event['total']:.0f} {event['unit']}")


def measure(
    pairs: int, plan_pairs: int, vocabulary_size: int, scratch: Path, show: Callable[[str], object]
) -> dict[str, Any]:
    """Runs the benchmark and returns what --json prints. Raises UserError if the disk is too small."""
    _check_disk(pairs, scratch)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(dir=scratch, prefix="aiayn-") as folder, cluster(None):
        show(f"writing {pairs} pairs of text")
        calls, settings = _files(Path(folder) / "text", pairs)
        for _ in map_on_ray(write_text, calls):
            pass
        started_s = time.perf_counter()
        vocabulary = WMT14.vocabulary.model_copy(update={"size": vocabulary_size})
        profile = WMT14.model_copy(update={"corpora": {PAIR: settings}, "pairs": {}, "vocabulary": vocabulary})
        text, store = stages.prepared(profile, PAIR), LocalStore(Path(folder))
        (dataset,) = runner.run([text.dataset], store, [ProgressLine(show)])
        seconds = time.perf_counter() - started_s
        show("sentencepiece alone")
        shards = text.corpus.published(store).shards("train")[: BARE_SHARDS * cores]
        alone = [*map_on_ray(bare_encoding, [(shard, dataset.folder / "joint.model") for shard in shards])]
        bare_pairs_s = cores * sum(done["pairs"] for done in alone) / sum(done["seconds"] for done in alone)
        manifests = {
            step.stage.name.split(".")[-1]: step.published(store).manifest for step in in_order([text.dataset])
        }
        disk_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        with ContenderProcess(SingleCoreCost, environment={"OMP_NUM_THREADS": "1"}) as single_core:
            show(f"planning an epoch of {plan_pairs} pairs")
            plan = single_core.call("plan", plan_pairs)
            show("reading updates")
            reading = single_core.call("read", dataset)
    stage_rates = {
        name: {
            "seconds": manifest["seconds"],
            "pairs_s": pairs / manifest["seconds"],
            "peak_task_memory_gb": manifest["peak_task_memory_bytes"] / 1e9,
        }
        for name, manifest in manifests.items()
    }
    return {
        "pairs": pairs,
        "cores": cores,
        "device_name": plan.pop("device_name"),
        "stages": stage_rates,
        "seconds": seconds,
        "pairs_s": pairs / seconds,
        "sentencepiece_pairs_s": bare_pairs_s,
        "ratio_sentencepiece": pairs / seconds / bare_pairs_s,
        "peak_task_memory_gb": max(rates["peak_task_memory_gb"] for rates in stage_rates.values()),
        "disk_gb": disk_bytes / 1e9,
        "plan": plan,
        "reading": reading,
    }


def bare_encoding(shard: Shard, model: Path) -> dict[str, float]:
    """Times sentencepiece encoding the pairs of a shard already in memory: no files, no arrays, no buckets."""
    processor = load(model)
    sides = [list(read_lines(side)) for side in (shard.source, shard.target)]
    started_s = time.perf_counter()
    for lines in sides:
        processor.encode(lines, add_eos=True, num_threads=1)
    return {"pairs": shard.pairs, "seconds": time.perf_counter() - started_s}


def _check_disk(pairs: int, scratch: Path) -> None:
    if not scratch.is_dir():
        raise UserError(f"--scratch {scratch} is not a folder")
    free_bytes, wanted_bytes = shutil.disk_usage(scratch).free, pairs * BYTES_PER_PAIR
    if free_bytes < wanted_bytes:
        raise UserError(
            f"{pairs} pairs take about {wanted_bytes / 1e9:.1f} GB and {scratch} has {free_bytes / 1e9:.1f} GB free; "
            "lower --pairs, or name a folder on another disk with --scratch"
        )


def _files(folder: Path, pairs: int) -> tuple[list[tuple[Any, ...]], FilesSettings]:
    """Returns the calls of `write_text` that write all splits, and the settings that read them."""
    folder.mkdir()
    sizes = [min(PAIRS_PER_FILE, pairs - begin) for begin in range(0, pairs, PAIRS_PER_FILE)]
    names = [*(f"train{number:03d}" for number in range(len(sizes))), "dev", "test"]
    files = [FilePair(source=folder / f"{name}.en", target=folder / f"{name}.de") for name in names]
    sizes += [HELD_OUT_PAIRS] * 2
    calls = [(file.source, file.target, size, seed) for seed, (file, size) in enumerate(zip(files, sizes, strict=True))]
    *train, dev, test = files
    return calls, FilesSettings(source="en", target="de", train=tuple(train), dev=dev, test={"test": test})
