"""Time and memory for the paper's 17 M silver trees in one file (slow, `-s` prints a table).

AIAYN_SILVER_TREES=200000 pytest -m slow -s tests/pipeline/parsing/test_silver_scale.py
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from pipeline.memory import forget_peak_memory, peak_memory_bytes
from pipeline.parsing.layouts import splits_of
from pipeline.parsing.pieces import cut
from pipeline.parsing.recombination import Recombination, RecombinationSettings
from pipeline.parsing.treebank import TreebankSettings, read
from pipeline.parsing.trees import bracketed, cleaned, read_trees
from pipeline.store.artifact import Context, map_here
from pipeline.text.aligned import SHARD_PAIRS
from pipeline.text.lines import write_lines

PAPER_TREES = 17_000_000
"""§6.3: "approximately 17M sentences"."""
TREES = int(os.environ.get("AIAYN_SILVER_TREES", "20000"))
CORES = 8
HOUR_S = 3600


def timed(function: Callable[[], Any]) -> tuple[float, float]:
    """Returns a call's CPU seconds and wall-clock seconds."""
    cpu_s, began_s = time.process_time(), time.monotonic()
    function()
    return time.process_time() - cpu_s, time.monotonic() - began_s


def with_peak(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Returns a call's result and its process's peak memory in bytes."""
    forget_peak_memory()
    return function(*arguments), peak_memory_bytes()


def write_silver(treebank: Path, path: Path) -> None:
    """Writes one tree per line: the treebank's in a cycle, each followed by a recombined one."""
    train = splits_of(treebank)["train"]
    gold = [tree for selection in train for placed in selection.read() if (tree := cleaned(placed.tree))]
    new = Recombination(train, RecombinationSettings(trees=TREES, constituents=0), 0, TREES)
    trees = chain.from_iterable(zip(cycle(gold), (placed.tree for placed in new.read()), strict=False))
    write_lines(path, map(bracketed, islice(trees, TREES)))


@pytest.mark.slow
def test_the_paper_s_silver_trees_take_less_than_an_hour(data: Path, tmp_path: Path) -> None:
    """On eight cores, extrapolated from CPU seconds of TREES: one process cuts the file, then each piece is a task."""
    path, copy = tmp_path / "silver", tmp_path / "copy"
    write_silver(data / "treebank", path)
    cut_s, _ = timed(lambda: cut(path, SHARD_PAIRS, copy))
    read_s, _ = timed(lambda: deque(read_trees(path), maxlen=0))
    peaks_bytes: list[int] = []

    def stage_s(name: str, apply: Callable[..., Any]) -> tuple[float, float]:
        settings = TreebankSettings(treebank=data / "treebank", silver=(path,))
        (tmp_path / name).mkdir()
        return timed(lambda: read(Context(tmp_path / name, map=apply), settings))

    forget_peak_memory()
    stage_cpu_s, one_core_s = stage_s("one", map_here)
    with get_context("spawn").Pool(2) as pool:

        def map_on_two(function: Callable[..., Any], calls: Iterable[Sequence[Any]]) -> Iterator[Any]:
            for result, peak_bytes in pool.starmap(with_peak, [(function, *arguments) for arguments in calls], 1):
                peaks_bytes.append(peak_bytes)
                yield result

        _, two_cores_s = stage_s("two", map_on_two)
    parts_s = {"cut": cut_s, "read": read_s, "clean, linearise, write": stage_cpu_s - cut_s - read_s}
    factor = PAPER_TREES / TREES
    all_s = factor * (cut_s + (stage_cpu_s - cut_s) / CORES)
    print(f"\n{TREES:,} trees of {path.stat().st_size / TREES:.0f} bytes; CPU µs a tree, CPU s for {PAPER_TREES:,}")
    for part, s in parts_s.items():
        print(f"{part:25} {1e6 * s / TREES:7.1f} {factor * s:7.0f}")
    print(f"one core {one_core_s:.1f} s, two {two_cores_s:.1f} s; {PAPER_TREES:,} trees on {CORES} cores {all_s:.0f} s")
    print(f"peak memory: {max(peaks_bytes) / 1e6:.0f} MB in a task, {peak_memory_bytes() / 1e6:.0f} MB in this process")
    assert all_s < HOUR_S
