"""Writes `runs/index.html`: every run in a folder, newest first, on one page that needs nothing outside the folder.

    write_index(store)

Workflows write it when they begin and when they end, and `aiayn runs` whenever it is asked.
"""

import logging
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.store.store import LocalStore
from workflows.console.quantities import duration
from workflows.runs.comparison import Pair, compare
from workflows.runs.names import CURVES, DEFAULT_ROOT, model_names
from workflows.runs.record import Run, read_records, runs_of

if TYPE_CHECKING:
    from jinja2 import Template

INDEX, REPORT = "index.html", "report.html"
MOST_CHANGES, MOST_FIGURES, MOST_MODELS = 6, 8, 6

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A run as the page shows it."""

    run: Run
    before: Run | None
    """The run of the same workflow and profile before it."""
    changes: tuple[Pair, ...]
    """The settings in which the two differ."""
    links: tuple[tuple[str, str], ...]
    """Names and relative addresses of its files that exist."""

    @property
    def report(self) -> str:
        """The address of its report, empty if there is none."""
        return dict(self.links).get(REPORT, "")


def write_index(store: LocalStore) -> Path:
    """Writes the page and returns its path; a page that cannot be written is told by a warning."""
    page = store.root / INDEX
    temporary = page.with_name(f".making-{INDEX}.{secrets.token_hex(8)}")
    try:
        page.parent.mkdir(parents=True, exist_ok=True)  # of a store in a bucket, nothing may be here yet
        temporary.write_text(render(store.root, runs_of(read_records(store))), encoding="utf-8")
        os.replace(temporary, page)
    except OSError as error:
        logger.warning("%s cannot be written: %s", page, error)
    return page


def entries(root: Path, runs: Sequence[Run]) -> list[Entry]:
    """Returns what the page shows of each run."""
    found = []
    for i, run in enumerate(runs):
        place = run.name.rpartition("/")[0]
        before = next((other for other in runs[i + 1 :] if other.name.rpartition("/")[0] == place), None)
        changes = compare(before.measured, run.measured).settings if before else ()
        found.append(Entry(run, before, changes, _links(root, run)))
    return found


def render(root: Path, runs: Sequence[Run]) -> str:
    """Renders the page of the runs in the folder `root`."""
    states = [run.newest.state for run in runs]
    return _template().render(
        entries=entries(root, runs),
        counts={state: states.count(state) for state in dict.fromkeys(states)},
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        when=when,
        duration=duration,
        figure=figure_text,
        value=value_text,
        models=model_names,
        where=lambda record: "" if root == Path(record.directory) / DEFAULT_ROOT else f"{root}/",
        most_changes=MOST_CHANGES,
        most_figures=MOST_FIGURES,
        most_models=MOST_MODELS,
    )


@cache
def _template() -> "Template":
    """Returns the compiled template, which a command renders twice."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # the command line need not import it

    environment = Environment(
        loader=PackageLoader("workflows.runs"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("index.html.j2")


def when(seconds: float) -> str:
    """Formats a time as the local date and minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def figure_text(figure: object) -> str:
    """Formats a figure as briefly as its size allows: 83.12, 5461, 2.4e+15."""
    if figure is None:
        return "–"
    if isinstance(figure, int | float) and not isinstance(figure, bool):
        return f"{figure:.2f}" if abs(figure) < 1000 and figure != int(figure) else f"{figure:.6g}"
    return str(figure)


def value_text(value: object) -> str:
    """Formats a setting; one that a run has not got is a dash."""
    return "–" if value is None else str(value)


def _links(root: Path, run: Run) -> tuple[tuple[str, str], ...]:
    folder = root / run.name
    if not folder.is_dir():
        return ()
    files = [entry.name for entry in sorted(folder.iterdir()) if entry.is_file() and entry.name != REPORT]
    curves = [f"{CURVES}/{entry.name}" for entry in sorted((folder / CURVES).glob("*.jsonl"))]
    names = [REPORT] * (folder / REPORT).is_file() + files + curves
    return tuple((name, f"{run.name}/{name}") for name in names)
