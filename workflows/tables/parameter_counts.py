"""Counts the parameters of each variation of the base model in Table 3 (§6.2), beside the counts that the paper prints.

    python -m workflows.reproduce_table3 --params

The paper prints no vocabulary size, and each row of the embedding adds d_model parameters. Counts are therefore
compared as differences from base, in which the embedding cancels out wherever d_model does not change.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from model.config import BASE, TransformerConfig
from model.parameters import count
from workflows.paper import TABLE_3, Variation, symbols

ROUNDING = 1_000_000
"""How far a difference of exact counts may be from a difference of counts that are each rounded to a million."""
Verdict = Literal["", "agrees", "does not agree", "depends on the vocabulary"]


@dataclass(frozen=True)
class ParameterRow:
    """The parameters of one row of Table 3, counted and printed; a printed count is None where there is none."""

    name: str
    difference: dict[str, Any]
    parameters: int
    from_base: int
    printed_millions: int | None
    printed_from_base_millions: int | None
    verdict: Verdict
    agreeing_sizes: tuple[int, int] | None
    """The smallest and the largest vocabulary with which a row that changes d_model agrees."""

    def texts(self) -> list[str]:
        """Returns the texts to show: row, change, millions counted and printed, each from base too, and verdict."""
        counted = f"{self.parameters / 1e6:.1f}", f"{self.from_base / 1e6:+.1f}" if self.from_base else "0.0"
        printed, from_base = self.printed_millions, self.printed_from_base_millions
        verdict = self.verdict + (f",\nagrees with {_range(self.agreeing_sizes)} pieces" if self.agreeing_sizes else "")
        return [
            self.name,
            symbols(self.difference),
            *counted,
            "" if printed is None else str(printed),
            "" if from_base is None else f"{from_base:+d}",
            verdict,
        ]


def parameter_rows(
    vocabulary_size: int = BASE.vocabulary_size, chosen: Sequence[Variation] = TABLE_3
) -> list[ParameterRow]:
    """Counts the parameters of the rows `chosen`, with `vocabulary_size` rows in the embedding."""
    reference = TABLE_3[0]
    base = count(reference.model(vocabulary_size))
    rows = []
    for row in chosen:
        config = row.model(vocabulary_size)
        parameters = count(config)
        verdict, sizes, printed_from_base = _compare(row, config, parameters - base)
        rows.append(
            ParameterRow(
                row.name,
                dict(row.difference),
                parameters,
                parameters - base,
                row.parameters_millions,
                printed_from_base,
                verdict,
                sizes,
            )
        )
    return rows


def _compare(
    row: Variation, config: TransformerConfig, from_base: int
) -> tuple[Verdict, tuple[int, int] | None, int | None]:
    """Returns the verdict, the vocabulary sizes that agree where they matter, and the printed difference."""
    reference = TABLE_3[0]
    if row is reference or row.parameters_millions is None or reference.parameters_millions is None:
        return "", None, None
    millions = row.parameters_millions - reference.parameters_millions
    low, high = millions * 1e6 - ROUNDING, millions * 1e6 + ROUNDING
    if config.d_model == BASE.d_model:
        return "agrees" if low <= from_base <= high else "does not agree", None, millions
    sizes = _sizes(config.vocabulary_size, from_base, config.d_model - BASE.d_model, low, high)
    return "depends on the vocabulary", sizes, millions


def _sizes(vocabulary_size: int, parameters: int, slope: int, low: float, high: float) -> tuple[int, int]:
    """Returns the range of vocabulary sizes that bring `parameters`, counted with `vocabulary_size`, into a range."""
    first, last = sorted(vocabulary_size + (bound - parameters) / slope for bound in (low, high))
    return math.ceil(first), math.floor(last)


def fitting_sizes() -> dict[str, tuple[int, int]]:
    """Returns, for each row with a printed count, the vocabulary sizes whose counts round to it."""
    sizes = {}
    for row in TABLE_3:
        if (millions := row.parameters_millions) is not None:
            config = row.model(BASE.vocabulary_size)
            low, high = (millions - 0.5) * 1e6, (millions + 0.5) * 1e6
            sizes[row.name] = _sizes(config.vocabulary_size, count(config), config.d_model, low, high)
    return sizes


def notes(vocabulary_size: int) -> list[str]:
    """Explains how to read the counts."""
    fitting = fitting_sizes()
    # The most rows that one size satisfies; their common range begins where the range of one of them begins.
    together = max(
        ([name for name, (first, last) in fitting.items() if first <= size <= last] for size, _ in fitting.values()),
        key=len,
    )
    common = max(fitting[name][0] for name in together), min(fitting[name][1] for name in together)
    others = [f"{name}, which needs {_range(sizes)}" for name, sizes in fitting.items() if name not in together]
    without_embeddings = count(BASE) - BASE.vocabulary_size * BASE.d_model
    return [
        f"Counts are in millions, for a vocabulary of {vocabulary_size:,} pieces. The paper prints no vocabulary size "
        f"beside its counts; without embeddings, base has {without_embeddings / 1e6:.1f}.",
        "Counts are therefore compared as differences from base. A difference agrees if it is within 1 million of the "
        "printed one, since the paper's counts are rounded. Where d_model changes, the difference depends on the "
        "vocabulary, and the vocabulary sizes with which it agrees are given.",
        f"No single vocabulary fits all of the paper's counts: base needs {_range(fitting['base'])} pieces, and "
        f"{_range(common)} pieces fit every count except that of {' and '.join(others)}.",
        f"Row E has a learned table of {BASE.max_positions:,} positions, which adds "
        f"{BASE.max_positions * BASE.d_model / 1e6:.1f}; the paper does not print the length of its table.",
    ]


def _range(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]:,} to {sizes[1]:,}"


def to_json(vocabulary_size: int, rows: Sequence[ParameterRow]) -> dict[str, Any]:
    """Returns everything that the table shows as JSON values."""
    return {
        "vocabulary_size": vocabulary_size,
        "rows": [asdict(row) for row in rows],
        "sizes_asked_for": fitting_sizes(),
        "notes": notes(vocabulary_size),
    }


def render_terminal(vocabulary_size: int, rows: Sequence[ParameterRow]) -> RenderableType:
    """Renders the counts for a terminal and, beneath them, how to read them."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    grid.add_column("Table 3", no_wrap=True)
    grid.add_column("change")
    for heading in ("here", "from\nbase", "paper", "from\nbase"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("difference from base")
    for row in rows:
        grid.add_row(*map(Text, row.texts()))
    listed = Table.grid(padding=(0, 1))
    for note in notes(vocabulary_size):
        listed.add_row("·", Text(note, style="dim"))
    return Group(grid, "", listed)
