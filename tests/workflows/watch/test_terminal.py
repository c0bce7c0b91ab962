"""The drawing of a run on a terminal, and the lines where there is none."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline.store.store import LocalStore
from workflows.watch.snapshot import Snapshot, record_of, take
from workflows.watch.terminal import BLOCKS, LOOK_S, draw, sparkline, watch_plain


@pytest.fixture
def seen(store: LocalStore, running: Callable[..., Any]) -> Snapshot:
    """A running run."""
    with running():
        return take(store, record_of(store, None))


def drawn(snapshot: Snapshot, height: int = 40) -> list[str]:
    """Draws without colours."""
    console = Console(file=io.StringIO(), width=100, height=height, color_system=None)
    console.print(draw(snapshot, height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_dag_is_a_tree_with_states_and_curves(seen: Snapshot) -> None:
    """Each stage stands beneath the input it comes after, with its mark; each training has its curves below."""
    lines = drawn(seen)
    assert lines[0].startswith("table2/embedded/1  running")
    assert "2 of 6 stages done, 1 running, 3 to come" in lines[0]
    tree = [line for line in lines if any(mark in line for mark in "✓▸○")]
    assert tree[0].startswith("✓ encode en-de  from the store")
    assert tree[1].startswith("├─ ▸ train en-de base  ━━━━━━━━━━━━")
    assert "30 of 40 updates" in tree[1]
    assert "1 s left" in tree[1]
    assert tree[2].startswith("│  ├─ ○ average en-de base")
    assert tree[3].startswith("│  │  └─ ○ table 2")
    assert tree[4].startswith("│  └─ ○ cost en-de base")
    assert tree[5].startswith("└─ ✓ report en-de  7 s")
    assert "loss █" in lines[-1]
    assert lines[-1].endswith("3.33")


def test_branches_of_one_state_become_a_line_where_there_is_no_room(seen: Snapshot) -> None:
    """What is waiting is counted; the stage that runs stays."""
    short = drawn(seen, height=10)
    assert any("average en-de base and 1 more after it" in line for line in short)
    assert not any("table 2" in line for line in short)
    assert any("▸ train en-de base" in line for line in short)
    least = drawn(seen, height=8)
    assert [line.split("  ")[0] for line in least[2:-2]] == ["▸ train en-de base"]


def test_the_end_is_told(seen: Snapshot) -> None:
    """A run that stopped says where, why, and how to go on; one that is finished where its report is."""
    stopped = replace(seen, state="failed", where="train en-de base", error="the disk is full")
    assert "failed at train en-de base: the disk is full" in drawn(stopped)
    assert "to go on: python -m workflows.reproduce_table2" in drawn(stopped)
    assert "report: /r/report.html" in drawn(replace(seen, state="finished", report="/r/report.html"))


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.integers(1, 40))
def test_sparklines(values: list[float], width: int) -> None:
    """As many blocks as there is room for; the lowest is of the least value and the highest of the greatest."""
    line = sparkline(values, width)
    assert len(line) == min(len(values), width)
    assert set(line) <= set(BLOCKS)
    if values and len(values) <= width and max(values) > min(values):
        assert line[values.index(min(values))] == BLOCKS[0]
        assert line[values.index(max(values))] == BLOCKS[-1]
    assert sparkline([1.0, 1.0]) == BLOCKS[0] * 2


def test_plain_lines_are_of_changes(seen: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has begun or ended is told once, then how the run ended."""
    monkeypatch.setattr("workflows.watch.terminal.LOOK_S", LOOK_S / 100)
    train = replace(seen.stages[1], state="finished", told="40 updates", fraction=None)
    later = replace(seen, stages=(seen.stages[0], train, *seen.stages[2:]))
    looks = iter([seen, seen, later, replace(later, state="interrupted", where="table 2")])
    console = Console(file=io.StringIO(), width=100)
    last = watch_plain(lambda: next(looks), console)
    assert last is not None
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue().splitlines()
    assert [line.split("  ")[0] for line in told if line[0] in "▸✓"] == [
        "▸ train en-de base",
        "✓ report en-de",
        "✓ train en-de base",
    ]
    assert told[-2:] == ["interrupted at table 2", "to go on: python -m workflows.reproduce_table2"]


def test_ctrl_c_ends_the_watching(seen: Snapshot) -> None:
    """It is no error, and nothing is returned."""

    def look() -> Snapshot:
        raise KeyboardInterrupt

    assert watch_plain(look, Console(file=io.StringIO())) is None
