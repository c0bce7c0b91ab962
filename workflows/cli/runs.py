"""`aiayn runs`: the runs of a store, from their records."""

import time

from rich.text import Text

from pipeline.errors import UserError
from pipeline.store.store import Store
from workflows.cli.console import print_error, say
from workflows.cli.options import StoreOption
from workflows.engine.plan import update_of
from workflows.quantities import in_words
from workflows.runs import Run, runs_in

MAX_METRICS = 4
STYLES = {"failed": "red", "interrupted": "yellow"}


def runs(store: StoreOption = "runs") -> None:
    """List the runs of a store, newest first. Status, progress, main results or why one failed, and the command."""
    named = Store.at(store).checked()
    if not (named.uri or named.root.is_dir()):
        raise UserError(f"--store {store}: no such folder; aiayn table2 writes a table")
    found = runs_in(named, lambda error: print_error(f"left out: {error}"))
    listed = sorted(found, key=lambda run: run.time, reverse=True)
    if not listed:
        say(f"no runs in {store} yet; aiayn table2 starts one")
        return
    rows = [("run", "status", "time", "progress", "result")]
    for run in listed:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.time))
        rows.append((run.name, run.status, at, _progress(run, named), _result(run)))
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    for row, command in zip(rows, ["", *(run.record.command for run in listed)], strict=True):
        line = Text("".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        line.stylize(STYLES.get(row[1], ""), widths[0], widths[0] + widths[1])
        for text in (line, Text(f"  {command}", "dim")) if command else (line,):
            say(text)  # can be copied


def _progress(run: Run, store: Store) -> str:
    """Returns what an unfinished run has done: its stages in the store, and the last checkpoint of one that trains."""
    if run.status not in ("running", "interrupted"):
        return ""
    names = run.record.artifacts.values()
    update = max((update_of(name, store) for name in names), default=0)
    stages = f"{sum(store.find(name) is not None for name in names)} of {len(names)} stages"
    return stages + f", update {update:,}" * bool(update)


def _result(run: Run) -> str:
    metrics = run.record.metrics.items()  # as brief as their size allows: 83.12, 5461, 2.4e+15
    is_short = {name: abs(value) < 1000 and value != int(value) for name, value in metrics}
    shown = [f"{in_words(name)} {format(value, '.2f' if is_short[name] else '.6g')}" for name, value in metrics]
    more = [f"{len(shown) - MAX_METRICS} more"] if len(shown) > MAX_METRICS else []
    return ", ".join(filter(None, [run.record.reason, *shown[:MAX_METRICS], *more]))
