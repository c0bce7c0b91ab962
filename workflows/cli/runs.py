"""`aiayn runs` and `aiayn compare`: what was run in a folder, and how two runs differ."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from pipeline.store.object_store import store_at
from workflows.console.command import console
from workflows.console.options import StoreOption
from workflows.console.quantities import duration
from workflows.runs.comparison import Comparison, Pair, chosen, compare
from workflows.runs.index import figure_text, value_text, when, write_index
from workflows.runs.record import Run, read_records, runs_of

STYLES = {"finished": "green", "running": "yellow", "interrupted": "yellow", "failed": "red"}
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
MOST_FIGURES = 4


def runs(store: StoreOption = "runs", as_json: JsonOption = False) -> None:
    """List the runs in a folder, newest first, with what was measured, and bring its index.html up to date."""
    where = store_at(store)
    found = runs_of(read_records(where))
    if as_json:
        listed = [{"name": run.name, "seconds": run.seconds, **asdict(run.measured), **_now(run)} for run in found]
        typer.echo(json.dumps({"runs": listed}, ensure_ascii=False))
        return
    if not found:
        console.print(f"no runs in {store} yet; python -m workflows.reproduce_table2 makes one", highlight=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("run", "state", "started", "time", "measured"):
        table.add_column(heading, header_style="bold", no_wrap=heading in ("state", "time"))
    for run in found:
        state = Text(run.newest.state, style=STYLES[run.newest.state])
        table.add_row(run.name, state, when(run.newest.started), duration(run.seconds), _outcome(run))
    console.print(table)
    console.print(f"\npage: {write_index(where)}", highlight=False, soft_wrap=True)


def compare_runs(
    one: Annotated[
        str | None, typer.Argument(help="A run, e.g. table2/embedded/1.  [default: the last but one]")
    ] = None,
    other: Annotated[str | None, typer.Argument(help="Another one.  [default: the last]")] = None,
    store: StoreOption = "runs",
    as_json: JsonOption = False,
) -> None:
    """Show the settings in which two runs differ, and their figures side by side."""
    first, second = chosen(runs_of(read_records(store_at(store))), one, other)
    compared = compare(first.measured, second.measured)
    if as_json:
        typer.echo(json.dumps({"one": first.name, "other": second.name, **asdict(compared)}, ensure_ascii=False))
        return
    _print(first, second, compared)


def _print(first: Run, second: Run, compared: Comparison) -> None:
    names = (first.name, second.name)
    if compared.settings:
        console.print(_table("settings that differ", names, [_texts(pair) for pair in compared.settings]))
    else:
        console.print(f"no setting differs between {first.name} and {second.name}", highlight=False)
    if compared.models:
        rows = [(pair.model, "yes" if pair.one else "–", "yes" if pair.other else "–") for pair in compared.models]
        console.print(_table("\nmodels of one run only", names, rows))
    if compared.origins:
        console.print(_table("\nbesides", names, [_texts(pair) for pair in compared.origins]))
    if compared.figures:
        measured = [(*_figures(pair), _difference(pair)) for pair in compared.figures]
        console.print(_table("\nmeasured", (*names, "difference"), measured, justify="right"))


def _table(
    title: str, names: Sequence[str], rows: Iterable[Sequence[str]], justify: Literal["left", "right"] = "left"
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(title, header_style="bold", overflow="fold")
    for name in names:
        heading = f"\n{name}" if title.startswith("\n") else name
        table.add_column(heading, header_style="bold", justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _texts(pair: Pair) -> tuple[str, str, str]:
    return f"{pair.model} {pair.name}".strip(), value_text(pair.one), value_text(pair.other)


def _figures(pair: Pair) -> tuple[str, str, str]:
    return f"{pair.model} {pair.name}".strip(), figure_text(pair.one), figure_text(pair.other)


def _difference(pair: Pair) -> str:
    if pair.one is None or pair.other is None or pair.one == pair.other:
        return ""
    difference = figure_text(pair.other - pair.one)
    return difference if difference.startswith("-") else f"+{difference}"


def _outcome(run: Run) -> str:
    """Says in a few words what was measured, or where the run stopped."""
    newest, figures = run.newest, run.measured.figures
    if newest.state == "running" and not figures:
        return f"{newest.count('finished', 'cached')} of {len(newest.steps)} steps"
    if newest.state in ("failed", "interrupted") and not figures:
        return " ".join(filter(None, (f"in {run.where}:" if run.where else "", newest.error))) or "before it began"
    shown = [f"{name} {figure_text(figure)}" for name, figure in figures.items()]
    more = f", {len(shown) - MOST_FIGURES} more" if len(shown) > MOST_FIGURES else ""
    return ", ".join(shown[:MOST_FIGURES]) + more


def _now(run: Run) -> dict[str, str]:
    return {"state": run.newest.state, "where": run.where, "error": run.newest.error}
