"""A table: rows of named values, and columns that format them.

    Column("paper_bleu.en-de", "Moses BLEU", "EN-DE", ".2f")
    Row("Transformer (base)", "measured", {"paper_bleu.en-de": 27.31, "paper_bleu.en-fr": Missing.NOT_RUN})

Numbers become text only in views: the terminal, Markdown (`render`) and the page (`page`). JSON and MLflow store
them as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from textwrap import fill
from typing import Annotated, Literal, Self

from pydantic import AfterValidator

from pipeline.records import NOT_DEFINED
from pipeline.store.artifact import JsonArtifact
from workflows.quantities import duration, flop_text, percent


class Missing(StrEnum):
    """Why a number is missing; stored and shown as this text."""

    NOT_RUN = "not run"
    NOT_MEASURED = "not measured"
    NOT_DEFINED = NOT_DEFINED
    FAILED = "failed"


def _as_missing(value: bool | int | float | str | None) -> bool | int | float | str | None:
    return Missing(value) if value in frozenset(Missing) else value


Value = Annotated[bool | int | float | str | None, AfterValidator(_as_missing)]
NAME = "name"
"""The key of the first column, which shows the row names."""
ORIGINS = {"paper": "as printed in the paper", "measured": "measured here"}
"""The headings above printed and measured rows, if they are grouped."""
IN_WORDS = {"s": duration, "FLOP": flop_text, "%": percent}
"""Formatters by unit; percentages are stored as fractions."""
MILLION = "M"
FIGURE_SPACE = "\u2007"


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    name: str
    origin: Literal["", "paper", "measured"]
    """The origin of all its numbers; empty if it depends on the column."""
    values: Mapping[str, Value]
    """Values by key: the columns' values, and others worth storing."""
    digits: Mapping[str, int] = field(default_factory=dict)
    """The paper's decimals by key, if they differ from the column's."""
    group: str = ""
    """Rules separate groups of rows."""
    footnote: str = ""
    """A note on the row, which an asterisk refers to."""

    @property
    def title(self) -> str:
        """The name, with an asterisk for a footnote."""
        return f"{self.name} *" if self.footnote else self.name

    def number(self, *keys: str) -> float | None:
        """Returns the first of these values that is a number, or None."""
        values = (self.values.get(key) for key in keys)
        return next((value for value in values if value is not None and not isinstance(value, str)), None)


@dataclass(frozen=True)
class Column:
    """A column: the key of its values and their format."""

    key: str
    heading: str
    block: str = ""
    """The heading shared with its neighbours, from which it is never separated; empty in leading columns."""
    spec: str = ""
    """The Python format of its numbers, e.g. `.2f`."""
    unit: str = ""
    """One of `IN_WORDS`, or `MILLION`; empty if the heading or text states it."""
    spread: str = ""
    """The key of the value written after ±."""
    is_measured: bool = False
    """Whether its numbers were measured here in every row."""
    on_terminal: bool = True

    @property
    def label(self) -> str:
        """The heading, prefixed with the block's."""
        return ", ".join(filter(None, (self.block, self.heading)))

    @property
    def is_number(self) -> bool:
        """Whether it has numbers, or texts in their place."""
        return bool(self.spec or self.unit)

    def measured(self, row: Row) -> bool:
        """Whether a row's value was measured here."""
        return self.is_measured or row.origin == "measured"

    def is_missing(self, row: Row) -> bool:
        """Whether a reason stands in place of a row's value."""
        return isinstance(row.values.get(self.key), Missing)

    def text(self, row: Row) -> str:
        """Returns the text of a row's value."""
        value = row.title if self.key == NAME else row.values.get(self.key)
        if value is None or isinstance(value, str):
            return value or ""
        if self.unit in IN_WORDS:
            return IN_WORDS[self.unit](value)
        text = format(value / 1e6 if self.unit == MILLION else value, self.spec)
        if self.key in row.digits:  # figure spaces keep the points of the column aligned
            text = f"{value:.{row.digits[self.key]}f}".ljust(len(text), FIGURE_SPACE)
        spread = row.number(self.spread)
        if spread is None:
            return text
        return f"{text}±{spread:.{2 if spread < 1 else 1 if spread < 10 else 0}f}"


@dataclass(frozen=True)
class Table:
    """A table and the explanation below it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    explanation: str = ""
    measured: str = ORIGINS["measured"]
    """The heading above measured rows."""

    @property
    def blocks(self) -> list[tuple[str, list[Column]]]:
        """The block headings in order, each with its columns."""
        return [(block, list(columns)) for block, columns in groupby(self.columns, key=lambda column: column.block)]

    def lines(self) -> Iterator[tuple[Row, str, bool]]:
        """Yields each row with its heading, if any, and whether a rule is drawn above."""
        origin = group = None
        for row in self.rows:
            heading = {**ORIGINS, "measured": self.measured}.get(row.origin, "") if row.origin != origin else ""
            yield row, heading, group is not None and (bool(heading) or row.group != group)
            origin, group = row.origin, row.group


def not_comparable(table: Table, data: str) -> Table:
    """Returns a table that names `data` above its measured values, and says that they are not the paper's."""
    heading = f"{data}, not comparable"
    columns = [replace(each, heading=fill(heading, 10)) if each.heading == "here" else each for each in table.columns]
    return replace(table, columns=columns, measured=heading)


@dataclass(frozen=True)
class Difference:
    """One aspect in which some cells differ from the paper."""

    what: str
    paper: str
    here: str
    cells: tuple[str, ...]
    """The labels of these cells, e.g. `EN-DE base`, or `all` if every cell that was run differs."""


@dataclass(frozen=True)
class Results:
    """The results of an experiment."""

    tables: Sequence[Table] = ()
    """The paper's table, then further tables."""
    differences: Sequence[Difference] = ()
    """Differences from the paper."""
    notes: Sequence[str] = ()
    """How to read the table."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The main numbers, by MLflow name."""
    said: str = ""
    """The result in one sentence."""

    @property
    def marked_notes(self) -> list[tuple[str, str]]:
        """All notes, each after an asterisk if it is a row's footnote, else after an empty text."""
        footnotes = dict.fromkeys(row.footnote for table in self.tables for row in table.rows if row.footnote)
        return [*(("", note) for note in self.notes), *(("*", note) for note in footnotes)]


class ResultsArtifact(JsonArtifact[Results]):
    """Results as JSON, Markdown and a page; the JSON omits defaults for readability."""

    def write(self, content: Results) -> Self:
        """Writes the JSON file into the folder and returns the artifact."""
        self.write_json(self.record_file, self._adapter().dump_python(content, mode="json", exclude_defaults=True))
        return self


def columns(*headings: str, block: str = "", spec: str = "") -> list[Column]:
    """Returns columns whose labels are also their keys."""
    return [Column(", ".join(filter(None, (block, heading))), heading, block, spec) for heading in headings]


def in_order(columns: Sequence[Column], *given: Value, origin: Literal["", "paper", "measured"] = "") -> Row:
    """Returns a row from its name and a value for each other column."""
    name, *others = given
    values = {column.key: value for column, value in zip(columns[1:], others, strict=True)}
    return Row(str(name), origin, values)
