"""`aiayn runs`: the runs of a store, from their records."""

import re
import time

from rich.table import Column, Table
from rich.text import Text

from pipeline.errors import UserError
from pipeline.store.store import Store
from workflows.cli.console import console, print_error
from workflows.cli.options import StoreOption
from workflows.quantities import in_words
from workflows.runs import Run, runs_in

MAX_METRICS = 4
STYLES = {"failed": "red", "interrupted": "yellow"}


def runs(store: StoreOption = "runs") -> None:
    """List the runs of a store, newest first, with their status and main results, or why they failed."""
    named = Store.at(store).checked()
    if not (named.uri or named.root.is_dir()):
        raise UserError(f"--store {store}: no such folder; aiayn table2 writes a table")
    found = list(runs_in(named))
    for error in found:
        if isinstance(error, UserError):
            print_error(f"left out: {error}")
    listed = sorted((run for run in found if isinstance(run, Run)), key=_time, reverse=True)
    if not listed:
        console.print(f"no runs in {store} yet; aiayn table2 starts one", highlight=False)
        return
    columns = (Column(heading, overflow="fold") for heading in ("run", "status", "time", "result", "options"))
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for run in listed:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(_time(run)))
        options = Text(re.sub(r"^(python -m|aiayn) \S+ ?", "", run.record.command))
        table.add_row(run.name, Text(run.status, STYLES.get(run.status, "")), at, Text(_result(run)), options)
    console.print(table)


def _time(run: Run) -> float:
    return (run.record.ended or run.record.began).timestamp()


def _result(run: Run) -> str:
    shown = [f"{in_words(name)} {_brief(value)}" for name, value in run.record.metrics.items()]
    more = [f"{len(shown) - MAX_METRICS} more"] if len(shown) > MAX_METRICS else []
    return ", ".join(filter(None, [run.record.reason, *shown[:MAX_METRICS], *more]))


def _brief(value: float) -> str:
    """Formats a number as briefly as its size allows: 83.12, 5461, 2.4e+15."""
    return f"{value:.2f}" if abs(value) < 1000 and value != int(value) else f"{value:.6g}"
