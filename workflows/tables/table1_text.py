"""Renders Table 1 as text: for a terminal, and as a Markdown document."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.complexity.exponents import Exponent
from workflows.tables import notes
from workflows.tables.table1 import VARIABLES, CrossoverRow, Layer, Quantity, Table1, Variable

CROSSOVER_HEADINGS = ("d", "sequences", "slower from n", "with projections")
QUANTITY_NAMES: dict[Quantity, str] = {
    "flop": "FLOP",
    "time": "time",
    "forward": "time, forward",
    "backward": "time, backward",
    "memory": "peak memory",
}
DIGITS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def render_terminal(table: Table1, width: int) -> RenderableType:
    """Renders the table for a terminal; it needs no more than 80 columns, so `width` decides nothing."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    n = table.layers[0].counted_n
    grid.add_column("Table 1")
    grid.add_column("per layer", no_wrap=True)
    for heading in ("FLOP\nn", "\nd", "time\nn", "\nd", f"in seq.\nn = {n}", f"path\nn = {n}"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for layer in table.layers:
        printed = (layer.name, layer.complexity, "", "", "", "", layer.printed_sequential, layer.printed_path)
        grid.add_row(*(Text(text) for text in printed))
        fitted = [f"{layer.fits[quantity][name].value:.2f}" for quantity in ("flop", "time") for name in VARIABLES]
        counted = (str(layer.sequential_operations), str(layer.longest_path))
        grid.add_row(Text("  measured", style="bold"), "", *(Text(text, style="bold") for text in (*fitted, *counted)))
    crossovers = notes.columns(*CROSSOVER_HEADINGS)
    for row in table.crossovers:
        crossovers.add_row(*crossover_texts(row))
    shown: list[RenderableType] = [grid, ""]
    if table.crossovers:
        shown += [Text("self-attention is slower than recurrence", style="bold"), crossovers, ""]
    return Group(*shown, notes.render_terminal(table.differences, table.notes))


def interval_text(fitted: Exponent) -> str:
    """Returns an exponent with half its confidence interval, e.g. `1.97 ± 0.04`."""
    return f"{fitted.value:.2f} ± {(fitted.high - fitted.low) / 2:.2f}"


def power(variable: Variable, exponent: int) -> str:
    """Returns n¹, d² and so on."""
    return f"{variable}{str(exponent).translate(DIGITS)}"


def crossover_texts(row: CrossoverRow) -> tuple[str, str, str, str]:
    """Returns the texts to show, in the order of CROSSOVER_HEADINGS."""

    def found(n: float | None, is_slower: bool) -> str:
        if n is not None:
            return f"{n:.0f}"
        return "at every n" if is_slower else f"not up to {row.longest_n}"

    texts = found(row.n, row.is_slower), found(row.n_projected, row.is_slower_projected)
    return str(row.d), str(row.batch), *texts


def counted_texts(counted: Mapping[int, int], contiguous: Mapping[int, int] | None = None) -> str:
    """Returns figures counted at several n as one text: `1, 3, 5`, and those of contiguous kernels behind them."""
    text = ", ".join(str(counted[n]) for n in sorted(counted))
    if contiguous:
        text += f" (contiguous: {', '.join(str(contiguous[n]) for n in sorted(contiguous))})"
    return text


def exponent_rows(layer: Layer) -> list[tuple[str, str, str]]:
    """Returns what is fitted of a layer: quantity, exponent of n, exponent of d."""
    rows = [
        (QUANTITY_NAMES[quantity], interval_text(fitted["n"]), interval_text(fitted["d"]))
        for quantity, fitted in layer.fits.items()
    ]
    if layer.projected:
        rows.append(("FLOP with projections", interval_text(layer.projected["n"]), interval_text(layer.projected["d"])))
    return rows


def render_markdown(table: Table1) -> str:
    """Renders the table, and everything beneath it, as a Markdown document."""
    lengths = ", ".join(map(str, sorted(table.layers[0].path_by_n)))
    headings = ["layer type", "per layer", "n, theory", "n, FLOP", "n, time", "d, theory", "d, FLOP", "d, time"]
    lines = ["# Table 1", *_grid(headings, 6, [_exponents(layer) for layer in table.layers])]
    headings = ["layer type", "sequential operations", f"counted at n = {lengths}", "longest path", "counted"]
    lines += [
        "",
        "## Sequential operations and longest paths",
        *_grid(headings, 0, [_counts(one) for one in table.layers]),
    ]
    lines += ["", "## All exponents"]
    rows = [(layer.name, *row) for layer in table.layers for row in exponent_rows(layer)]
    lines += _grid(["layer type", "of", "n", "d"], 2, rows)
    if table.crossovers:
        lines += ["", "## Where self-attention becomes slower than recurrence"]
        lines += _grid(CROSSOVER_HEADINGS, 4, [crossover_texts(row) for row in table.crossovers])
    return "\n".join([*lines, *notes.render_markdown(table.differences, table.notes)]) + "\n"


def _exponents(layer: Layer) -> list[str]:
    expected: dict[Variable, int] = {"n": layer.expected_n, "d": layer.expected_d}
    texts = [layer.name, layer.complexity]
    for name in VARIABLES:
        texts += [power(name, expected[name]), *(interval_text(layer.fits[one][name]) for one in ("flop", "time"))]
    return texts


def _counts(layer: Layer) -> list[str]:
    return [
        layer.name,
        layer.printed_sequential,
        counted_texts(layer.sequential_by_n),
        layer.printed_path,
        counted_texts(layer.path_by_n, layer.contiguous_path_by_n),
    ]


def _grid(headings: Sequence[str], n_right: int, rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table, the last `n_right` columns of which are aligned to the right."""
    rule = "|---" * (len(headings) - n_right) + "|---:" * n_right + "|"
    return ["", notes.markdown_row(headings), rule, *map(notes.markdown_row, rows)]
