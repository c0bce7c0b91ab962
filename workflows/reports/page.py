"""Renders the parts that the reports share: one HTML file with everything in it, to read offline, mail or print."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.text.corpus_statistics import CorpusStatistics
from workflows import paper
from workflows.console.quantities import duration, percent, rounded
from workflows.reports.corpus_plot import plots
from workflows.reports.corpus_text import REASONS, facts, rows, title
from workflows.reports.svg import Point
from workflows.tables.differences import DECODING_NAMES, OPTIMIZER_NAMES
from workflows.tables.measurements import Trained
from workflows.tables.notes import HEADINGS
from workflows.tables.provenance import hardware

Against = Literal["updates", "minutes"]
AGAINST: dict[Against, Callable[[Mapping[str, Any]], float]] = {
    "updates": lambda line: float(line["update"]),
    "minutes": lambda line: float(line["train_s"]) / 60,
}
"""The horizontal axes of learning curves, each read from a line of `metrics.jsonl`."""


def render(template: str, corpora: Iterable[CorpusStatistics], **values: object) -> str:
    """Renders a template of this package as HTML that needs nothing outside itself.

    `corpora` are the texts that the models were trained on. A value that the template names and `values` lacks is an
    error.
    """
    environment = Environment(
        loader=PackageLoader("workflows.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    texts = [
        {"title": title(one), "drawings": plots(one), "collections": rows(one), "facts": facts(one)} for one in corpora
    ]
    shared = {
        "duration": duration,
        "percent": percent,
        "made": made,
        "texts": texts,
        "reasons": REASONS,
        "difference_headings": HEADINGS,
    }
    return environment.get_template(template).render(**shared, **values)


def learning_curve(cell: Trained, against: Against, figure: str) -> list[Point]:
    """Returns the curve of a figure over the lines of `metrics.jsonl` that have it."""
    return [(AGAINST[against](line), line[figure]) for line in cell.metrics if figure in line]


def libraries(cells: Iterable[Trained]) -> str:
    """Lists the libraries, with their versions, that the last of the trainings used."""
    manifests = [cell.manifests["training"] for cell in cells if "training" in cell.manifests]
    named = manifests[-1].get("libraries", {}) if manifests else {}
    return ", ".join(f"{name} {version}" for name, version in named.items())


def settings(cell: Trained) -> dict[str, str]:
    """Lists the settings and figures of one model, in the order of the paper."""
    run = cell.run

    def named(names: Mapping[str, str], values: object) -> str:
        return ", ".join(f"{short} {getattr(values, name)}" for name, short in names.items())

    return {
        "data": f"{cell.data or 'unnamed data'}: {rounded(cell.train_pairs)} training pairs",
        "vocabulary": f"{rounded(cell.config.vocabulary_size)} joint pieces",
        "model": named(paper.MODEL_SYMBOLS, cell.config)
        + (f", attention_window {window}" if (window := cell.config.attention_window) else ""),
        "parameters": rounded(run.parameters),
        "optimizer": f"Adam, {named(OPTIMIZER_NAMES, cell.settings.optimizer)}",
        "updates": f"{rounded(run.updates)} ({run.epochs:.3g} epochs)",
        "tokens per update": f"{rounded(run.source_tokens / run.updates)} source, "
        f"{rounded(run.target_tokens / run.updates)} target; {100 * run.padding_fraction:.1f} % padding",
        "seed": str(cell.settings.seed),
        "training time": f"{duration(run.train_s)}, {rounded(run.target_tokens / run.train_s)} target tokens/s",
        "hardware": hardware(run),
        "averaged checkpoints": ", ".join(map(rounded, cell.averaged_updates)),
        "dev perplexity": f"{cell.perplexity.dev_perplexity:.3f} per word-piece",
        "decoding": f"{named(DECODING_NAMES, cell.decoding.settings)}, {cell.decoding.dtype}",
        **cell.score_texts(),
    }
