"""Shows a workflow's progress: a line per event and, on a terminal, a bar per active stage."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn

from pipeline.store.artifact import Artifact
from workflows.engine.dag import Step, in_order
from workflows.engine.interface import Watcher
from workflows.engine.plan import Reason, grouped
from workflows.quantities import duration

PLAIN_PROGRESS_S = 15.0
"""Seconds between a stage's progress lines if the output is not a terminal."""
RATE_S = 600.0
"""The window for estimating the time left, in seconds."""


class View(Watcher):
    """Prints a line per finished stage. Active stages have bars on a terminal, and progress lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, steps: Mapping[Step[Artifact], Reason], cached: Sequence[Step[Artifact]]) -> None:
        """Prints the number of stages to run and the reasons for reruns, and starts the bars."""
        self._began, self._n_steps, self._n_finished = time.monotonic(), len(steps), 0
        self._announced = {step.fingerprint for step in steps}
        self._started, self._printed, self._tasks = dict[str, float](), dict[str, float](), dict[str, Task]()
        label, status = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[status]}"))
        columns, console = (label, BarColumn(20), status, TimeRemainingColumn()), self._console
        off = not console.is_terminal  # then it draws nothing but estimates the time left
        self._bars = Progress(*columns, console=console, disable=off, auto_refresh=False, speed_estimate_period=RATE_S)
        if steps:
            inputs = f", using {len(cached)} from the store" if cached else ""
            self._console.print(f"{len(steps)} stage{'s' * (len(steps) > 1)} to run{inputs}", highlight=False)
            for line in grouped(steps):
                self._console.print(line, highlight=False, soft_wrap=True, markup=False)
            self._bars.start()

    def started(self, step: Step[Artifact]) -> None:
        """Adds a bar."""
        self._started[step.fingerprint] = self._printed[step.fingerprint] = time.monotonic()
        self._n_steps += step.fingerprint not in self._announced
        self._add_bar(step)
        self._plain_line(step.label, "started")

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Shows progress, warnings and waits; off a terminal also each measurement on the dev set."""
        if "warning" in event:
            self._line(step.label, f"warning: {event['warning']}")
        for kind in {"waiting", "starting"} & event.keys():
            self._bars.update(self._add_bar(step).id, status=event[kind])
            self._plain_line(step.label, f"{kind}: {event[kind]}")
        task = self._tasks.get(step.fingerprint)
        if task is None:  # it arrived after the step's result
            return
        metrics = event.get("metrics", {})
        if "dev_perplexity" in metrics:
            self._plain_line(step.label, f"update {event['step']:,}  dev perplexity {metrics['dev_perplexity']:.2f}")
            for sample in metrics["samples"]:
                self._plain_line(step.label, f"{sample['source']} -> {sample['translation'] or '(empty)'}")
        if "total" not in event:
            return
        rate = f"{event['tokens_s']:,.0f} tokens/s" if event.get("tokens_s") else ""
        loss = f"loss {event['loss']:.2f}" if "loss" in event else ""
        status = "  ".join(filter(None, (f"{event['done']:,.0f}/{event['total']:,.0f} {event['unit']}", rate, loss)))
        # Start-up time and work before a resumption must not count for the rate.
        show = self._bars.reset if task.total is None else self._bars.update
        show(task.id, total=event["total"], completed=event["done"], status=status)
        if time.monotonic() - self._printed[step.fingerprint] >= PLAIN_PROGRESS_S:
            self._printed[step.fingerprint] = time.monotonic()
            left = f"  {duration(task.time_remaining)} left" if task.time_remaining is not None else ""
            self._plain_line(step.label, status + left)

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Prints the step's duration and its artifact's summary."""
        self._n_finished += 1
        self._remove_bar(step)
        took = duration(time.monotonic() - self._started[step.fingerprint])
        self._line(step.label, f"done in {took}{f'  {summary}' if summary else ''}")

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        """Prints that a model failed, and removes the bars of its run and the steps after it.

        A step that another model needs may still finish.
        """
        for step in in_order(results):
            if step.is_trained:
                self._remove_bar(step)
        self._line(name, f"failed{f': {why}' if why else ''}")

    def idle(self) -> None:
        """Redraws the bars."""
        self._bars.refresh()

    def end(self) -> None:
        """Leaves the bars of unfinished steps on the screen."""
        self._bars.refresh()
        self._bars.stop()

    def _add_bar(self, step: Step[Artifact]) -> Task:
        """Returns the step's bar, which waiting steps may have before they start."""
        if step.fingerprint not in self._tasks:
            self._bars.add_task(step.label, total=None, status="")
            self._tasks[step.fingerprint] = self._bars.tasks[-1]
        return self._tasks[step.fingerprint]

    def _remove_bar(self, step: Step[Artifact]) -> None:
        if task := self._tasks.pop(step.fingerprint, None):
            self._bars.remove_task(task.id)
        self._bars.refresh()

    def _plain_line(self, label: str, text: str) -> None:
        if not self._console.is_terminal:
            self._line(label, text)

    def _line(self, label: str, text: str) -> None:
        count = f"{self._n_finished}/{self._n_steps}"
        line = f"{time.monotonic() - self._began:7.1f} s  {count:>6}  {label:<28} {text}"
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)
