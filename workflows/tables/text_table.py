"""What is shown of a table: texts in columns and lines, the same on a terminal, in Markdown and in a report.

TextTable("Table 2", [Column("model"), Column("paper BLEU", "EN-DE", is_number=True)], [Line(["ByteNet", "23.75"])])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from pipeline.store.figures import NOT_DEFINED

NOT_RUN, NOT_MEASURED = "not run", "not measured"
ABSENT = frozenset({NOT_RUN, NOT_MEASURED, "failed", NOT_DEFINED})
"""The texts that stand in place of a missing figure."""
ORIGINS = {"paper": "as printed in the paper", "measured": "measured here"}
"""The headings of printed and measured lines, where they stand apart."""


@dataclass(frozen=True)
class Column:
    """A column."""

    heading: str
    block: str = ""
    """The heading that it shares with its neighbours, from which it is not parted; empty in the columns that lead."""
    is_number: bool = False
    is_measured: bool = False
    """Whether its figures were measured here in every line."""
    on_terminal: bool = True

    @property
    def label(self) -> str:
        """The heading, with that of the block."""
        return ", ".join(filter(None, (self.block, self.heading)))


@dataclass(frozen=True)
class Line:
    """A line with a text for each column; one that is a heading has a single text."""

    texts: Sequence[str]
    kind: Literal["printed", "measured", "heading"] = "printed"
    begins: bool = False
    """Whether a rule is drawn above it."""


@dataclass(frozen=True)
class TextTable:
    """A table and the sentences that stand beneath it."""

    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]
    explanation: str = ""
    on_terminal: bool = True

    @property
    def blocks(self) -> list[tuple[str, list[int]]]:
        """The headings that columns share, each with the places of its columns; one after the other."""
        numbered = groupby(range(len(self.columns)), key=lambda i: self.columns[i].block)
        return [(block, list(places)) for block, places in numbered]

    def is_measured(self, line: Line, i: int) -> bool:
        """Tells whether a cell is of what was measured here."""
        return line.kind == "measured" or self.columns[i].is_measured


def by_origin(printed: Sequence[Sequence[str]], measured: Sequence[Sequence[str]]) -> list[Line]:
    """Returns printed lines under their heading, and measured ones under theirs."""
    return [
        Line([ORIGINS["paper"]], "heading"),
        *(Line(texts) for texts in printed),
        Line([ORIGINS["measured"]], "heading", begins=True),
        *(Line(texts, "measured") for texts in measured),
    ]


def numbers(*headings: str, block: str = "", is_measured: bool = False) -> list[Column]:
    """Returns columns of figures."""
    return [Column(heading, block, is_number=True, is_measured=is_measured) for heading in headings]


def words(*headings: str, block: str = "") -> list[Column]:
    """Returns columns of words."""
    return [Column(heading, block) for heading in headings]
