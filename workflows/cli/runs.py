"""`aiayn runs` and `aiayn compare`: the tables that were made in a folder, and how two of them differ."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from pipeline.store.object_store import store_at
from workflows.console.command import console
from workflows.console.options import StoreOption
from workflows.runs.listing import Comparison, Pair, Run, chosen, compare, runs_in

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
MAX_FIGURES = 4


def runs(store: StoreOption = "runs", as_json: JsonOption = False) -> None:
    """List the tables that were made in a folder, newest first, with what was measured."""
    made = runs_in(store_at(store))
    if as_json:
        listed = [
            {"name": run.name, "folder": str(run.folder), "command": run.command, "figures": run.figures}
            for run in made
        ]
        typer.echo(json.dumps({"runs": listed}, ensure_ascii=False))
        return
    if not made:
        console.print(f"no tables in {store} yet; python -m workflows.reproduce_table2 makes one", highlight=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("run", "made", "measured", "options", "folder"):
        table.add_column(heading, header_style="bold", overflow="fold")
    for run in made:
        made_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.ended_s))
        table.add_row(*map(Text, (run.name, made_at, _headline(run), _options(run), run.folder.name)))
    console.print(table)


def compare_runs(
    one: Annotated[
        str | None, typer.Argument(help="A run, e.g. table2/embedded/1.  [default: the last but one]")
    ] = None,
    other: Annotated[str | None, typer.Argument(help="Another one.  [default: the last]")] = None,
    store: StoreOption = "runs",
    as_json: JsonOption = False,
) -> None:
    """Show the settings in which two runs differ, and their figures side by side."""
    first, second = chosen(runs_in(store_at(store)), one, other)
    compared = compare(first, second)
    if as_json:
        typer.echo(json.dumps({"one": first.name, "other": second.name, **asdict(compared)}, ensure_ascii=False))
        return
    _print(first, second, compared)


def _print(first: Run, second: Run, compared: Comparison) -> None:
    names = (first.name, second.name)
    if compared.settings:
        rows = [(pair.name, _value(pair.one), _value(pair.other)) for pair in compared.settings]
        console.print(_table("settings that differ", names, rows))
    else:
        console.print(f"no setting differs between {first.name} and {second.name}", highlight=False)
    for name, labels in zip(names, compared.lonely, strict=True):
        if labels:
            console.print(f"\nonly in {name}: {', '.join(labels)}", highlight=False, markup=False)
    if compared.figures:
        measured = [(pair.name, _figure(pair.one), _figure(pair.other), _difference(pair)) for pair in compared.figures]
        console.print()
        console.print(_table("measured", (*names, "difference"), measured, justify="right"))


def _table(
    title: str, names: Sequence[str], rows: Iterable[Sequence[str]], justify: Literal["left", "right"] = "left"
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(title, header_style="bold", overflow="fold")
    for name in names:
        table.add_column(name, header_style="bold", justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _headline(run: Run) -> str:
    shown = [f"{name} {_figure(figure)}" for name, figure in run.figures.items()]
    more = f", {len(shown) - MAX_FIGURES} more" if len(shown) > MAX_FIGURES else ""
    return ", ".join(shown[:MAX_FIGURES]) + more


def _options(run: Run) -> str:
    return run.command.partition(" -m ")[2].partition(" ")[2]


def _value(value: object) -> str:
    return "–" if value is None else str(value)


def _figure(figure: float | None) -> str:
    """Formats a figure as briefly as its size allows: 83.12, 5461, 2.4e+15."""
    if figure is None:
        return "–"
    return f"{figure:.2f}" if abs(figure) < 1000 and figure != int(figure) else f"{figure:.6g}"


def _difference(pair: Pair) -> str:
    if pair.one is None or pair.other is None or pair.one == pair.other:
        return ""
    difference = _figure(pair.other - pair.one)
    return difference if difference.startswith("-") else f"+{difference}"
