"""The first screen of a report: one sentence, what was run, and the paper's numbers beside those measured here.

table = compared("BLEU, test set", [["EN-DE base", "27.3", "83.10"]])
Overview(said, ran(cells), table, bars(table, "table2"))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup
from matplotlib.axes import Axes

from workflows.quantities import duration, rounded
from workflows.reports.svg import COLORS, Plot, figure, image
from workflows.tables.measurements import Trained
from workflows.tables.provenance import hardware
from workflows.tables.text_table import Column, Line, TextTable, numbers

PAPER, HERE = "paper", "here"
PAPER_COLOR, HERE_COLOR = "#8b9098", COLORS[0]
BAR_IN, MARGINS_IN, BAR_PT = 0.42, 0.75, 8.0


@dataclass(frozen=True)
class Overview:
    """What the first screen shows."""

    said: str
    """The result in one sentence."""
    ran: Mapping[str, str]
    """What was run, on what, with what and in how long: a few words each."""
    compared: TextTable
    """The figures as printed and as measured; its title is what they are of, e.g. `BLEU, test set`."""
    picture: Markup = field(default_factory=Markup)


def compared(title: str, rows: Sequence[Sequence[str]], *blocks: str) -> TextTable:
    """Returns rows of a name, and a printed and a measured figure for each block, as a table."""
    columns = [Column("")]
    for block in blocks or [""]:
        columns += [*numbers(PAPER, block=block), *numbers(HERE, block=block, is_measured=True)]
    return TextTable(title, columns, [Line([text or "–" for text in row]) for row in rows])


def ran(cells: Sequence[Trained]) -> dict[str, str]:
    """Returns in a few words which models were trained, on what text, on what machine and in how long."""
    if not cells:
        return {}
    updates = sorted({cell.run.updates for cell in cells})
    sizes = sorted({cell.run.parameters for cell in cells})
    texts = {f"{cell.data or 'unnamed data'}, {rounded(cell.train_pairs)} pairs": None for cell in cells}
    train_s = sum(cell.run.train_s for cell in cells)
    count = f"{len(cells)} models" if len(cells) > 1 else "1 model"
    return {
        "what": f"{count} of {_range([f'{size / 1e6:.3g}' for size in sizes])} M parameters, "
        f"{_range(list(map(rounded, updates)))} updates each",
        "on": "; ".join(texts),
        "with": "; ".join(dict.fromkeys(hardware(cell.run) for cell in cells)),
        "in": f"{duration(train_s)} of training",
    }


def _range(texts: Sequence[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def bars(table: TextTable, name: str) -> Markup:
    """Draws two bars for each line, the printed figure and the measured one; one where the other is not known."""
    lines = [line.texts for line in table.lines]
    figures = [{PAPER: _number(paper), HERE: _number(here)} for _, paper, here in lines]
    most = max((value for pair in figures for value in pair.values() if value is not None), default=1.0)

    def draw(axes: Axes) -> None:
        for i, (line, pair) in enumerate(zip(lines, figures, strict=True)):
            known = [(origin, value) for origin, value in pair.items() if value is not None]
            for j, (origin, value) in enumerate(known):
                place = i + (0.2 * (2 * j - 1) if len(known) > 1 else 0)
                color = PAPER_COLOR if origin == PAPER else HERE_COLOR
                axes.barh(place, value, 0.36, color=color, label="_" if i else origin)
                text = line[1] if origin == PAPER else line[2]
                axes.text(value + 0.012 * most, place, text, fontsize=BAR_PT, verticalalignment="center")
        axes.set_yticks(range(len(lines)), [line[0] for line in lines])
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.set_xlim(0, 1.12 * most)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")

    described = "; ".join(f"{label}: paper {paper}, here {here}" for label, paper, here in lines)
    picture = image(Plot(table.title, "percent", draw, MARGINS_IN + BAR_IN * len(lines), described))
    key = Markup(
        '<span class="key"><i style="background:{}"></i>paper</span> <span class="key"><i style="background:{}"></i>'
        "here</span>"
    ).format(PAPER_COLOR, HERE_COLOR)
    rows = [(line[0], pair[PAPER], pair[HERE]) for line, pair in zip(lines, figures, strict=True)]
    return figure(picture, name, ("", PAPER, HERE), rows, key)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
