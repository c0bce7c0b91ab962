"""The report of a table: one HTML file with everything in it, to be read offline, sent by mail or printed."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from workflows import paper
from workflows.differences import DECODING_NAMES, OPTIMIZER_NAMES, rounded
from workflows.measured import Measured
from workflows.table2 import FOOTNOTES, NOT_RUN, Table2
from workflows.view import duration

COLORS = ("#2f6fd0", "#d1731c", "#1f9a78", "#a05ec0")
"""Of the curves; legible on white and on near-black."""
INK = "#010203"
"""Stands for the text colour in the drawings, which is that of the page."""
Point = tuple[float, float]


def _drawing(
    title: str,
    x_label: str,
    curves: Sequence[Sequence[Point]],
    labels: Sequence[str],
    *,
    log: bool = False,
    tall: bool = True,
) -> Markup:
    """An SVG with one line a curve, in the order of `COLORS`, that takes the page's text colour."""
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": title + x_label,
        "font.family": "sans-serif",
        "font.size": 9,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "axes.grid": True,
        "grid.color": INK,
        "grid.alpha": 0.12,
        "grid.linewidth": 0.6,
    }
    with rc_context(style):
        figure = Figure(figsize=(4.4, 2.9 if tall else 1.9), layout="constrained")
        axes = figure.subplots()
        for curve, label, color in zip(curves, labels, COLORS * len(curves), strict=False):
            xs, ys = [x for x, _ in curve], [y for _, y in curve]
            axes.plot(
                xs, ys, color=color, linewidth=1.5, label=label, marker="o" if len(curve) < 15 else None, markersize=3
            )
        if log and any(curves):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlim(left=0)
        axes.set_xlabel(x_label)
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        file = io.StringIO()
        figure.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)  # HTML needs none; the file names no address
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r"<svg [^>]*viewBox=", f'<svg role="img" aria-label="{title} against {x_label}" viewBox=', svg, count=1
    )
    svg = svg.replace('version="1.1"', "", 1)
    return Markup(svg)


def _points(cell: Measured, x: Callable[[Mapping[str, Any]], float], y: str) -> list[Point]:
    return [(x(line), line[y]) for line in cell.metrics if y in line]


def _drawings(cells: Sequence[Measured]) -> list[Markup]:
    """Learning curves against updates and against minutes, and the learning rate."""

    def update(line: Mapping[str, Any]) -> float:
        return float(line["update"])

    def minute(line: Mapping[str, Any]) -> float:
        return float(line["train_s"]) / 60

    labels = [cell.label for cell in cells]
    return [
        _drawing(title, x_label, [_points(cell, x, y) for cell in cells], labels, log=log, tall=y != "learning_rate")
        for title, y, log in (("dev perplexity", "dev_perplexity", True), ("training loss", "loss", False))
        for x_label, x in (("updates", update), ("minutes", minute))
    ] + [
        _drawing(
            "learning rate", "updates", [_points(cell, update, "learning_rate") for cell in cells], labels, tall=False
        )
    ]


def _settings(cell: Measured) -> dict[str, str]:
    """What a reader wants to know of one model, in the order of the paper."""
    run, updates = cell.run, cell.run["updates"]

    def named(names: Mapping[str, str], values: Mapping[str, Any]) -> str:
        return ", ".join(f"{short} {values[name]}" for name, short in names.items())

    return {
        "data": f"{cell.data or 'own data'}: {rounded(cell.train_pairs)} training pairs",
        "vocabulary": f"{rounded(cell.config['vocabulary_size'])} joint pieces",
        "model": named(paper.MODEL_SYMBOLS, cell.config),
        "parameters": rounded(run["parameters"]),
        "optimizer": f"Adam, {named(OPTIMIZER_NAMES, cell.settings['optimizer'])}",
        "updates": f"{rounded(updates)} ({run['epochs']:.3g} epochs)",
        "tokens an update": f"{rounded(run['source_tokens'] / updates)} source, "
        f"{rounded(run['target_tokens'] / updates)} target; {100 * run['padding_fraction']:.1f} % padding",
        "seed": str(cell.settings["seed"]),
        "training time": f"{duration(run['train_s'])}, {rounded(run['target_tokens'] / run['train_s'])} tokens/s",
        "hardware": f"{cell.cost['devices']} × {cell.cost['device_name']}, {run['dtype']}",
        "averaged checkpoints": ", ".join(rounded(n) for n in cell.averaged_updates),
        "dev perplexity": f"{cell.perplexity['dev_perplexity']:.3f} a piece",
        "decoding": f"{named(DECODING_NAMES, cell.decoding['settings'])}, {cell.decoding['dtype']}",
        **{
            f"BLEU, {name}": f"paper BLEU {scores['paper_bleu']:.2f}, sacreBLEU {scores['sacrebleu']:.2f}"
            for name, scores in cell.scores.items()
        },
    }


def render(table: Table2, cells: Sequence[Measured]) -> str:
    """The report as HTML that asks for nothing outside itself."""
    environment = Environment(
        loader=PackageLoader("workflows"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        table=table,
        columns=table.columns,
        not_run=NOT_RUN,
        footnotes=FOOTNOTES,
        cells=cells,
        colors=dict(zip((cell.label for cell in cells), COLORS, strict=False)),
        drawings=_drawings(cells) if cells else [],
        settings={cell.label: _settings(cell) for cell in cells},
        duration=duration,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
