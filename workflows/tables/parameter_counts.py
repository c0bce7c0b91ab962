"""Table 3 (§6.2): how many parameters each variation of the base model has, beside the counts that the paper prints.

    python -m workflows.reproduce_table3 --params

The paper prints no vocabulary size, and each row of the embedding adds d_model parameters. So counts are compared as
differences from base, in which the embedding cancels out wherever d_model stays.
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
"""By so much may two differences of counts differ, of which both counts of one are rounded to a million."""
Verdict = Literal["", "agrees", "does not agree", "depends on the vocabulary"]


@dataclass(frozen=True)
class ParameterRow:
    """The parameters of one row of Table 3, counted and printed; None where the paper prints none."""

    name: str
    difference: dict[str, Any]
    parameters: int
    from_base: int
    printed_millions: int | None
    printed_from_base_millions: int | None
    verdict: Verdict
    agreeing_sizes: tuple[int, int] | None
    """Smallest and largest vocabulary with which a row of another d_model agrees."""

    def texts(self) -> list[str]:
        """As shown: row, difference, millions counted and printed, each with its difference from base, verdict."""
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
    """The counts of the rows `chosen`, with so many rows in the embedding."""
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
    """Verdict, vocabulary sizes that agree where it hangs on them, and the difference that the paper's counts give."""
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
    """Vocabulary sizes for which `parameters`, here counted with `vocabulary_size`, lie from `low` to `high`."""
    first, last = sorted(vocabulary_size + (bound - parameters) / slope for bound in (low, high))
    return math.ceil(first), math.floor(last)


def asked_sizes() -> dict[str, tuple[int, int]]:
    """For each row with a printed count, the vocabulary sizes for which the counted parameters round to it."""
    sizes = {}
    for row in TABLE_3:
        if (millions := row.parameters_millions) is not None:
            config = row.model(BASE.vocabulary_size)
            low, high = (millions - 0.5) * 1e6, (millions + 0.5) * 1e6
            sizes[row.name] = _sizes(config.vocabulary_size, count(config), config.d_model, low, high)
    return sizes


def notes(vocabulary_size: int) -> list[str]:
    """What must be known to read the counts."""
    asked = asked_sizes()
    # The most rows that one size satisfies; their common range begins where the range of one of them begins.
    together = max(
        ([name for name, (first, last) in asked.items() if first <= size <= last] for size, _ in asked.values()),
        key=len,
    )
    common = max(asked[name][0] for name in together), min(asked[name][1] for name in together)
    others = [f"{name}, which asks for {_range(sizes)}" for name, sizes in asked.items() if name not in together]
    without_embeddings = count(BASE) - BASE.vocabulary_size * BASE.d_model
    return [
        f"Counted in millions, with a vocabulary of {vocabulary_size:,} pieces. The paper prints no vocabulary size "
        f"beside its counts; without embeddings base has {without_embeddings / 1e6:.1f}.",
        "So counts compare as differences from base: they agree within 1 million, as the paper's counts are rounded. "
        "Where d_model changes, they depend on the vocabulary; the sizes with which they agree are told.",
        f"Taken as they are, the paper's counts fit no one vocabulary: base asks for {_range(asked['base'])} pieces; "
        f"{_range(common)} fit all counts but that of {' and '.join(others)}.",
        f"Row E has a learned table of {BASE.max_positions:,} positions, which adds "
        f"{BASE.max_positions * BASE.d_model / 1e6:.1f}; the paper does not print the length of its own.",
    ]


def _range(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]:,} to {sizes[1]:,}"


def to_json(vocabulary_size: int, rows: Sequence[ParameterRow]) -> dict[str, Any]:
    """All that the table shows, as JSON values."""
    return {
        "vocabulary_size": vocabulary_size,
        "rows": [asdict(row) for row in rows],
        "sizes_asked_for": asked_sizes(),
        "notes": notes(vocabulary_size),
    }


def render_terminal(vocabulary_size: int, rows: Sequence[ParameterRow]) -> RenderableType:
    """The counts and, beneath them, how to read them."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    grid.add_column("Table 3", no_wrap=True)
    grid.add_column("change")
    for heading in ("here", "from\nbase", "paper", "from\nbase"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("difference from base")
    for row in rows:
        grid.add_row(*map(Text, row.texts()))
    told = Table.grid(padding=(0, 1))
    for note in notes(vocabulary_size):
        told.add_row("·", Text(note, style="dim"))
    return Group(grid, "", told)
