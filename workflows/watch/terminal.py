"""Draws a run on a terminal: the DAG as a tree with the states of its stages, and the curves of its trainings.

Where the output is no terminal, each change is a line.
"""

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from workflows.console.quantities import duration
from workflows.watch.snapshot import Curve, Snapshot, StageView

LOOK_S = 1.0
PLAIN_PROGRESS_S = 15.0
"""Seconds between a stage's progress lines when the output is not a terminal."""
MARKS = {"cached": "✓", "finished": "✓", "running": "▸", "waiting": "○", "failed": "✗", "stopped": "■"}
STYLES = {
    "cached": "dim green",
    "finished": "green",
    "running": "bold yellow",
    "waiting": "dim",
    "failed": "bold red",
    "stopped": "red",
    "interrupted": "red",
}
BLOCKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 24
BAR_WIDTH = 16
OTHER_LINES = 4
"""The lines of a drawing besides those of stages and curves."""
FIGURES: dict[str, str] = {"loss": "loss", "dev_perplexity": "dev perplexity"}
LOGARITHMIC = ("dev_perplexity",)
"""The figures that are drawn by their logarithms."""


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Returns a curve in block characters: the mean of each of `width` parts, between the least and the most."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)


def draw(snapshot: Snapshot, height: int) -> RenderableType:
    """Draws a run in at most `height` lines if that is possible.

    Where the tree has no room, its branches of one state become one line each; where that is not enough, only what is
    running or went wrong is shown.
    """
    curves = _curves(snapshot.curves)
    room = height - OTHER_LINES - len(curves)
    lines = _tree(snapshot.stages, is_short=False)
    if len(lines) > room:
        lines = _tree(snapshot.stages, is_short=True)
    if len(lines) > room:
        lines = [_line(stage) for stage in snapshot.stages if stage.state in ("running", "failed", "stopped")]
    return Group(_heading(snapshot), Text(), *lines, Text(), *curves)


def _heading(snapshot: Snapshot) -> Text:
    text = Text(snapshot.run, style="bold").append("  ").append(snapshot.state, STYLES.get(snapshot.state, ""))
    text.append(f"  {duration(snapshot.seconds)}  {snapshot.told()}", "dim")
    if ending := ended(snapshot):
        text.append(f"\n{ending}")
    return text


def ended(snapshot: Snapshot) -> str:
    """Says how a run ended and where; empty while it runs."""
    if snapshot.state == "running":
        return ""
    if snapshot.state == "finished":
        return f"report: {snapshot.report}" if snapshot.report else ""
    reason = f": {snapshot.error}" if snapshot.error else ""
    at = f" at {snapshot.where}" if snapshot.where else ""
    return f"{snapshot.state}{at}{reason}\nto go on: {snapshot.command}"


def _tree(stages: Sequence[StageView], *, is_short: bool) -> list[Text]:
    children: dict[int | None, list[int]] = {}
    for i, stage in enumerate(stages):
        children.setdefault(stage.parent, []).append(i)
    lines: list[Text] = []

    def below(number: int) -> list[int]:
        found, to_see = [], [number]
        while to_see:
            one = to_see.pop()
            found.append(one)
            to_see += children.get(one, [])
        return found

    to_draw = [(number, "", "") for number in reversed(children.get(None, []))]
    while to_draw:
        number, before, after = to_draw.pop()
        branch = below(number) if is_short else [number]
        states = {_kind(stages[i]) for i in branch}
        if is_short and len(branch) > 1 and len(states) == 1 and states <= {"done", "waiting"}:
            lines.append(Text(before).append(_branch(stages[number], len(branch))))
            continue
        lines.append(Text(before, style="dim").append(_line(stages[number])))
        own = children.get(number, [])
        for i, child in reversed([*enumerate(own)]):
            is_last = i == len(own) - 1
            to_draw.append((child, f"{after}{'└─ ' if is_last else '├─ '}", f"{after}{'   ' if is_last else '│  '}"))
    return lines


def _kind(stage: StageView) -> str:
    return "done" if stage.state in ("cached", "finished") else stage.state


def _branch(stage: StageView, n_stages: int) -> Text:
    more = f" and {n_stages - 1} more after it"
    return Text(f"{MARKS[stage.state]} {stage.label}{more}", style=STYLES[stage.state])


def _line(stage: StageView) -> Text:
    text = Text(f"{MARKS[stage.state]} {stage.label}", style=STYLES[stage.state])
    if stage.state == "cached":
        return text.append("  from the store", "dim")
    if stage.fraction is not None and stage.state in ("running", "stopped", "failed"):
        done = round(BAR_WIDTH * min(stage.fraction, 1.0))
        text.append("  ").append("━" * done, "yellow").append("━" * (BAR_WIDTH - done), "dim")
    told = [stage.told] if stage.told else []
    told += [duration(stage.seconds)] if stage.seconds is not None else []
    told += [f"{duration(stage.left_s)} left"] if stage.left_s is not None else []
    return text.append("  " * bool(told) + ", ".join(told), "not bold dim")


def _curves(curves: Sequence[Curve]) -> list[Text]:
    lines = []
    width = max((len(curve.training) for curve in curves), default=0)
    for training in dict.fromkeys(curve.training for curve in curves):
        line = Text(f"{training:<{width}}")
        for curve in (curve for curve in curves if curve.training == training):
            values = [y for _, y in curve.points]
            shape = [math.log(y) for y in values] if curve.figure in LOGARITHMIC else values
            line.append(f"  {FIGURES[curve.figure]} ", "dim").append(sparkline(shape), "cyan")
            line.append(f" {values[-1]:.2f}")
        lines.append(line)
    return lines


def watch_live(look: Callable[[], Snapshot], console: Console) -> Snapshot | None:
    """Redraws the run in place until it ends; returns its last state, or None after ctrl-C."""
    snapshot = look()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop", transient=False) as live:
        try:
            while True:
                live.update(draw(snapshot, console.height), refresh=True)
                if snapshot.state != "running":
                    return snapshot
                time.sleep(LOOK_S)
                snapshot = look()
        except KeyboardInterrupt:
            return None


def watch_plain(look: Callable[[], Snapshot], console: Console) -> Snapshot | None:
    """Prints a line for each change until the run ends; returns its last state, or None after ctrl-C."""
    told: dict[str, str] = {}
    printed_s: dict[str, float] = {}
    try:
        snapshot = look()
        _say(console, f"{snapshot.run}  {snapshot.state}  {duration(snapshot.seconds)}  {snapshot.told()}")
        while True:
            for stage in snapshot.stages:
                _tell(stage, told, printed_s, console)
            if snapshot.state != "running":
                _say(console, f"{snapshot.run}  {snapshot.state}  {duration(snapshot.seconds)}  {snapshot.told()}")
                if ending := ended(snapshot):
                    _say(console, ending)
                return snapshot
            time.sleep(LOOK_S)
            snapshot = look()
    except KeyboardInterrupt:
        return None


def _tell(stage: StageView, told: dict[str, str], printed_s: dict[str, float], console: Console) -> None:
    """Prints a stage's line if its state is another than before, or if its progress has not been told for a while."""
    now_s = time.monotonic()
    is_new = told.get(stage.label) != stage.state
    is_due = stage.state == "running" and now_s - printed_s.get(stage.label, now_s) >= PLAIN_PROGRESS_S
    if (is_new and stage.state not in ("waiting", "cached")) or is_due:
        _say(console, _line(stage).plain)
    if is_new or is_due:
        told[stage.label], printed_s[stage.label] = stage.state, now_s


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
