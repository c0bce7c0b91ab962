"""The first screen of a report: one sentence, what was run, and the paper's numbers beside those measured here.

Overview(said, ran, [Compared("EN-DE base", "27.3", "83.10")], picture=bars("BLEU", lines), ...)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup
from matplotlib.axes import Axes

from workflows.quantities import duration, rounded
from workflows.reports.svg import COLORS, Plot, figure, image
from workflows.tables.measurements import Trained
from workflows.tables.provenance import hardware

PAPER, HERE = "paper", "here"
PAPER_COLOR, HERE_COLOR = "#8b9098", COLORS[0]
BAR_IN, MARGINS_IN, BAR_PT = 0.42, 0.75, 8.0


@dataclass(frozen=True)
class Compared:
    """A line of the plain table: a figure as printed and as measured; an empty text where there is none."""

    label: str
    paper: str
    here: str
    more: tuple[str, ...] = ()
    """Further cells, under `Overview.columns`."""


@dataclass(frozen=True)
class Overview:
    """What the first screen shows."""

    said: str
    """The result in one sentence."""
    ran: Mapping[str, str]
    """What was run, on what, with what and in how long: a few words each."""
    figure: str
    """What is compared, e.g. `BLEU, test set`."""
    lines: Sequence[Compared]
    picture: Markup = field(default_factory=Markup)
    columns: tuple[str, ...] = (PAPER, HERE)
    """The headings of the plain table's figures: the printed, the measured, and any further ones."""


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


def bars(title: str, lines: Sequence[Compared], name: str) -> Markup:
    """Draws two bars for each line, the printed figure and the measured one; one where the other is not known."""
    numbers = [{PAPER: _number(line.paper), HERE: _number(line.here)} for line in lines]
    most = max((value for pair in numbers for value in pair.values() if value is not None), default=1.0)

    def draw(axes: Axes) -> None:
        for i, (line, pair) in enumerate(zip(lines, numbers, strict=True)):
            known = [(origin, value) for origin, value in pair.items() if value is not None]
            for j, (origin, value) in enumerate(known):
                place = i + (0.2 * (2 * j - 1) if len(known) > 1 else 0)
                color = PAPER_COLOR if origin == PAPER else HERE_COLOR
                axes.barh(place, value, 0.36, color=color, label="_" if i else origin)
                text = line.paper if origin == PAPER else line.here
                axes.text(value + 0.012 * most, place, text, fontsize=BAR_PT, verticalalignment="center")
        axes.set_yticks(range(len(lines)), [line.label for line in lines])
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.set_xlim(0, 1.12 * most)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")

    told = "; ".join(f"{line.label}: paper {line.paper or 'none'}, here {line.here or 'none'}" for line in lines)
    picture = image(Plot(title, "percent", draw, MARGINS_IN + BAR_IN * len(lines), told))
    key = Markup(
        '<span class="key"><i style="background:{}"></i>paper</span> <span class="key"><i style="background:{}"></i>'
        "here</span>"
    ).format(PAPER_COLOR, HERE_COLOR)
    rows = [(line.label, pair[PAPER], pair[HERE]) for line, pair in zip(lines, numbers, strict=True)]
    return figure(picture, name, ("", PAPER, HERE), rows, key)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
