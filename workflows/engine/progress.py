"""Shows a workflow's plan and its progress: as a live table on a terminal, otherwise as one line per event."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pipeline.store.artifact import Artifact
from pipeline.store.store import LocalStore
from workflows.console.quantities import duration
from workflows.engine.dag import Step, in_order, to_run
from workflows.engine.events import Watcher

PLAIN_PROGRESS_S = 15.0
"""Seconds between a stage's progress lines when the output is not a terminal."""
RECENT_STEPS = 6


@dataclass
class _State:
    """The state of a running or finished step."""

    started: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    first_progress: tuple[float, float] | None = None
    summary: str = ""
    printed_s: float = 0.0
    waiting: str = ""
    """Why the step is waiting, shown until it makes progress."""

    def update(self, progress: dict[str, Any]) -> None:
        self.progress = progress
        if self.first_progress is None:
            # Start-up time and work done before a resumption must not affect the rate.
            self.first_progress = (time.monotonic(), progress["done"])

    @property
    def left_s(self) -> float | None:
        """The remaining seconds at the rate so far."""
        if self.first_progress is None:
            return None
        since_s, done_before = self.first_progress
        done = self.progress["done"] - done_before
        return (self.progress["total"] - self.progress["done"]) * (time.monotonic() - since_s) / done if done else None


def _figures(progress: dict[str, Any]) -> str:
    """Formats the figures of a progress event, e.g. `5 120 tokens/s  loss 2.31`."""
    figures = [f"{progress['tokens_s']:,.0f} tokens/s".replace(",", " ")] if progress.get("tokens_s") else []
    if progress.get("mb_s"):
        figures.append(f"{progress['mb_s']:.1f} MB/s")
    if "loss" in progress:
        figures.append(f"loss {progress['loss']:.2f}")
    return "  ".join(figures)


class PlainView(Watcher):
    """Prints one line per event."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._states: dict[str, _State] = {}
        self._n_steps = 0
        self._n_finished = 0
        self._began = time.monotonic()

    def _line(self, step: Step[Artifact], text: str) -> None:
        elapsed_s = time.monotonic() - self._began
        count = f"{self._n_finished}/{self._n_steps}"
        self._console.print(
            f"{elapsed_s:7.1f} s  {count:>6}  {step.label:<28} {text}", highlight=False, soft_wrap=True, markup=False
        )

    def begin(self, steps: Sequence[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Prints how many stages there are to run."""
        self._began, self._n_steps, self._n_finished = time.monotonic(), len(steps), 0
        if steps:
            inputs = f", using {len(cached)} from the store" if cached else ""
            self._console.print(f"{len(steps)} stages to run{inputs}", highlight=False)

    def started(self, step: Step[Artifact]) -> None:
        """Prints that the step has started."""
        self._states[step.fingerprint] = _State()
        self._line(step, "started")

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Prints each measurement on the dev set, and progress every so often."""
        state = self._states.setdefault(step.fingerprint, _State())
        if "waiting" in event:
            self._line(step, f"waiting: {event['waiting']}")
        metrics = event.get("metrics", {})
        if "dev_perplexity" in metrics:
            self._line(step, f"update {event['step']}  dev perplexity {metrics['dev_perplexity']:.2f}")
        if "total" in event:
            state.update(event)
            if time.monotonic() - max(state.printed_s, state.started) >= PLAIN_PROGRESS_S:
                state.printed_s = time.monotonic()
                left = f"  {duration(state.left_s)} left" if state.left_s is not None else ""
                done = f"{event['done']:.0f}/{event['total']:.0f} {event['unit']}"
                self._line(step, f"{done}  {_figures(event)}{left}".rstrip())

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Prints the time that the step took, and its artifact's summary."""
        state = self._states.setdefault(step.fingerprint, _State())
        self._n_finished += 1
        summary = f"  {summary}" if summary else ""
        self._line(step, f"done in {duration(time.monotonic() - state.started)}{summary}")


class LiveView(Watcher):
    """A table of the running stages with progress, tokens per second and time left, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._states: dict[str, _State] = {}
        self._steps: dict[str, Step[Artifact]] = {}
        self._live: Live | None = None
        self._began = time.monotonic()
        self._n_cached = 0

    def begin(self, steps: Sequence[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Starts drawing."""
        self._began, self._states, self._live = time.monotonic(), {}, None
        self._steps = {step.fingerprint: step for step in steps}
        self._n_cached = len(cached)
        if steps:
            self._live = Live(self._draw(), console=self._console, auto_refresh=False)
            self._live.start()

    def started(self, step: Step[Artifact]) -> None:
        """Adds a row."""
        self._states[step.fingerprint] = _State()

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Advances a progress bar."""
        state = self._states.setdefault(step.fingerprint, _State())
        if "waiting" in event:
            state.waiting = event["waiting"]
        if "total" in event:
            state.update(event)

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Ticks a row off."""
        state = self._states.setdefault(step.fingerprint, _State())
        state.seconds, state.summary = time.monotonic() - state.started, summary

    def idle(self) -> None:
        """Redraws the table."""
        if self._live is not None:
            self._live.update(self._draw(), refresh=True)

    def end(self, error: BaseException | None) -> None:
        """Leaves the final table on the screen."""
        if self._live is not None:
            self._live.update(self._draw(), refresh=True)
            self._live.stop()

    def _draw(self) -> Group:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title, justify in (("stage", "left"), ("", "left"), ("progress", "left"), ("time left", "right")):
            table.add_column(title, justify=justify, style="" if title else "cyan", no_wrap=True)  # type: ignore[arg-type]
        finished = [name for name, state in self._states.items() if state.seconds is not None]
        running = [name for name, state in self._states.items() if state.seconds is None]
        for name in finished[-RECENT_STEPS:]:
            state = self._states[name]
            done = Text(f"done in {duration(state.seconds or 0)}", style="green").append(f"  {state.summary}", "dim")
            table.add_row(self._steps[name].label, "✓", done, "")
        for name in running:
            state = self._states[name]
            left = duration(state.left_s) if state.left_s is not None else ""
            table.add_row(self._steps[name].label, "▸", self._bar(state), left)
        elapsed = duration(time.monotonic() - self._began)
        waiting = len(self._steps) - len(self._states)
        counts = f"{len(finished)} of {len(self._steps)} stages done · {len(running)} running · {waiting} waiting"
        cached = f" · {self._n_cached} from the store" if self._n_cached else ""
        return Group(table, Text(f"{counts}{cached} · {elapsed}", style="dim"))

    def _bar(self, state: _State) -> Table | Text:
        progress = state.progress
        if not progress:
            return Text(state.waiting or "starting", style="dim")
        row = Table.grid(padding=(0, 1))
        done = f"{progress['done']:.0f}/{progress['total']:.0f} {progress['unit']}"
        row.add_row(
            ProgressBar(total=progress["total"] or 1, completed=progress["done"], width=20), done, _figures(progress)
        )
        return row


def view(console: Console) -> Watcher:
    """Returns the view that suits the console."""
    return LiveView(console) if console.is_terminal else PlainView(console)


def print_plan(console: Console, target: Step[Artifact], store: LocalStore) -> None:
    """Prints every stage, whether it is cached or has to run, and its folder."""
    found: dict[str, str | None] = {}
    missing = {step.fingerprint for step in to_run([target], store, found)}
    table = Table(box=None, pad_edge=False)
    for title in ("stage", "", "folder"):
        table.add_column(title, no_wrap=True)
    for step in in_order([target]):
        if step.fingerprint in missing:
            state = "damaged, to run" if found.get(step.fingerprint) else "to run"
        else:
            state = "cached" if step.is_made(store) else "not needed"
        table.add_row(step.label, state, store.folder(step.name).name)
    console.print(table)
    console.print(f"{len(missing)} stages to run; store: {store.shown}", highlight=False, soft_wrap=True)
