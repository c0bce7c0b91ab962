"""Renders any of the tables as text: for a terminal, and as a Markdown document.

    console.print(render_terminal(table, console.width))

Beneath what a table shows stand the differences from the paper, and the notes. On a terminal too narrow for a table its
blocks stand beneath each other, each with the columns that lead, and words too long for their column are folded.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

from rich.text import Text

from workflows import paper
from workflows.tables.differences import Difference
from workflows.tables.text_table import ABSENT, Line, TextTable, words

FOOTNOTES = frozenset(row.footnote for row in paper.TABLE_2 if row.footnote)
"""The notes that an asterisk in a table refers to."""
MIN_WIDTH = len("d_model 1024,")
"""A column of words that is wider is made no narrower, nor is a word broken, unless nothing else fits."""


class Shown(Protocol):
    """A table of the paper."""

    @property
    def differences(self) -> list[Difference]:
        """What differs from the paper."""

    @property
    def notes(self) -> list[str]:
        """How to read it."""

    def shown(self) -> list[TextTable]:
        """Returns the table itself, then what else stands beneath it."""


def differences_table(differences: Sequence[Difference]) -> TextTable:
    """Returns the differences from the paper as a table."""
    lines = [Line([one.what, one.paper, one.here, ", ".join(one.cells)]) for one in differences]
    nothing = "" if lines else "Nothing that was run differs."
    return TextTable("What differs from the paper", words("what", "paper", "here", "applies to"), lines, nothing)


def render_terminal(table: Shown, width: int) -> Text:
    """Renders the table for a terminal of `width` columns."""
    shown = [*table.shown(), differences_table(table.differences)]
    parts = [terminal_table(one, width) for one in shown if one.on_terminal]
    for note in table.notes:
        lead = "* " if note in FOOTNOTES else "· "
        parts.append(Text(_filled(lead + note, width, subsequent_indent="  ") + "\n", style="dim"))
    return Text("").join(parts)


def terminal_table(table: TextTable, width: int) -> Text:
    """Renders one table for a terminal of `width` columns, with an empty line beneath it."""
    parts = [Text(f"{table.title}\n", style="bold")]
    if table.lines:
        layout = _Layout(table)
        parts += [layout.drawn(columns, width) for columns in layout.parts(width)]
    if table.explanation:
        parts.append(Text(f"{_filled(table.explanation, width)}\n\n"))
    return Text("").join(parts)


class _Layout:
    """How wide the columns of a table are on a terminal."""

    def __init__(self, table: TextTable) -> None:
        self.table = table
        shown = [i for i, column in enumerate(table.columns) if column.on_terminal]
        self.leading = [i for i in shown if not table.columns[i].block]
        self.blocks = [places for block, places in table.blocks if block]
        self.natural = {i: self._longest(i, "\n") for i in shown}
        """The widths at which headings alone are folded."""
        parted = {i: min(self._longest(i, "\n "), MIN_WIDTH) for i in shown}
        self.least = {i: max(parted[i], self._longest(i, "\n \u00a0")) for i in shown}
        """The widths beyond which words are folded but not broken."""
        for places in self.blocks:
            missing = max(0, len(table.columns[places[0]].block) - self._total(places, self.natural))
            self.natural[places[0]] += missing
        self.least |= {i: self.natural[i] for i in shown if table.columns[i].is_number}

    def _longest(self, i: int, separators: str) -> int:
        """Returns the length of the longest word of a column's heading, or piece of its texts cut at `separators`."""
        texts = [line.texts[i] for line in self.table.lines if line.kind != "heading"]
        pieces = [piece for text in texts for piece in re.split(f"[{separators}]", text)]
        return max(map(len, [*self.table.columns[i].heading.split(" "), *pieces]))

    def _gap(self, left: int, right: int) -> int:
        one, other = self.table.columns[left], self.table.columns[right]
        return 1 if one.is_number and other.is_number and one.block == other.block else 2

    def _total(self, columns: Sequence[int], widths: Mapping[int, int]) -> int:
        """Returns the width of columns side by side."""
        return sum(widths[i] for i in columns) + sum(self._gap(*pair) for pair in pairwise(columns))

    def parts(self, width: int) -> list[list[int]]:
        """Returns the columns of each of the fewest parts beneath each other that fit, filled evenly."""
        parts = [self.leading]
        for n in range(1, len(self.blocks) + 1):
            parts = [list(self.leading) for _ in range(n)]
            for places in self.blocks:
                min(parts, key=lambda part: self._total(part, self.least)).extend(places)
            if all(self._total(part, self.least) <= width for part in parts):
                break
        return parts

    def _fitted(self, columns: Sequence[int], width: int) -> dict[int, int]:
        """Narrows columns of words until all fit: the widest first, and only then below the length of a word."""
        widths = dict(self.natural)
        while self._total(columns, widths) > width:
            folded = [i for i in columns if not self.table.columns[i].is_number]
            narrowed = [i for i in folded if widths[i] > self.least[i]] or [i for i in folded if widths[i] > MIN_WIDTH]
            if not narrowed:
                break
            widths[max(narrowed, key=lambda i: widths[i])] -= 1
        return widths

    def drawn(self, columns: Sequence[int], width: int) -> Text:
        """Draws some of the columns, with an empty line beneath them."""
        widths = self._fitted(columns, width)
        rule = Text("─" * self._total(columns, widths) + "\n", style="dim")
        parts = [*self._headings(columns, widths), rule]
        for number, line in enumerate(self.table.lines):
            if line.begins and number:
                parts.append(rule)
            if line.kind == "heading":
                parts.append(Text(f"{line.texts[0]}\n", style="dim italic"))
            else:
                parts += self._rows(columns, widths, line.texts, partial(self._style, line))
        return Text("").join([*parts, Text("\n")])

    def _style(self, line: Line, i: int) -> str:
        if line.texts[i] in ABSENT:
            return "dim"
        return "bold" if self.table.is_measured(line, i) else ""

    def _headings(self, columns: Sequence[int], widths: Mapping[int, int]) -> Iterator[Text]:
        shared = " " * self._total(self.leading, widths)
        for places in self.blocks:
            if places[0] in columns:
                shared += "  " + self.table.columns[places[0]].block.center(self._total(places, widths))
        if self.blocks:
            yield Text(f"{shared.rstrip()}\n", style="bold")
        folded = [_folded(column.heading, widths.get(i, 1)) for i, column in enumerate(self.table.columns)]
        height = max(len(folded[i]) for i in columns)
        padded = ["\n" * (height - len(lines)) + "\n".join(lines) for lines in folded]
        yield from self._rows(columns, widths, padded, lambda _: "bold")

    def _rows(
        self, columns: Sequence[int], widths: Mapping[int, int], texts: Sequence[str], style: Callable[[int], str]
    ) -> Iterator[Text]:
        """Writes a line of the table in as many lines as its texts have when folded."""
        folded = {i: _folded(texts[i], widths[i]) for i in columns}
        for row in range(max(map(len, folded.values()))):
            text, before = Text(), columns[0]
            for i in columns:
                part = "".join(folded[i][row : row + 1])
                text.append(" " * (self._gap(before, i) if i != before else 0))
                text.append(
                    part.rjust(widths[i]) if self.table.columns[i].is_number else part.ljust(widths[i]), style(i)
                )
                before = i
            text.rstrip()
            yield text.append("\n")


def _folded(text: str, width: int) -> list[str]:
    """Breaks a text into lines, at a no-break space only where there is no other way."""
    lines = []
    for line in text.split("\n"):
        parts = (part.replace("\u00a0", " ") if len(part) > width else part for part in line.split(" "))
        lines += textwrap.wrap(" ".join(parts), width, break_on_hyphens=False) or [""]
    return [line.replace("\u00a0", " ") for line in lines]


def _filled(text: str, width: int, subsequent_indent: str = "") -> str:
    return textwrap.fill(text, width, subsequent_indent=subsequent_indent, break_on_hyphens=False)


def render_markdown(table: Shown) -> str:
    """Renders the table, and everything beneath it, as a Markdown document."""
    main, *others = table.shown()
    lines = [f"# {main.title}", *markdown_table(main)]
    for other in (*others, differences_table(table.differences)):
        lines += ["", f"## {other.title}", *markdown_table(other)]
    notes = [("\\* " if note in FOOTNOTES else "") + note for note in table.notes]
    return "\n".join([*lines, "", "## How to read the table", "", *(f"- {note}" for note in notes)]) + "\n"


def markdown_table(table: TextTable) -> list[str]:
    """Returns one table, and what explains it, as lines of a Markdown document."""
    lines = []
    if table.lines:
        headings = [column.label for column in table.columns]
        rule = "|".join("---:" if column.is_number else "---" for column in table.columns)
        lines += ["", _markdown_row(headings), f"|{rule}|"]
        for line in (line for line in table.lines if line.kind != "heading"):
            name, *others = line.texts
            lines.append(_markdown_row([name + ", measured" * (line.kind == "measured"), *others]))
    return [*lines, *(["", table.explanation] if table.explanation else [])]


def _escaped(text: str) -> str:
    shown = text.replace("\n", "; ").replace("\u00a0", " ")
    return shown.replace("|", "\\|").replace(" *", " \\*")


def _markdown_row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(map(_escaped, texts))} |"
