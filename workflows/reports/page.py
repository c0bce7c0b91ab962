"""Renders the parts that the reports share: one HTML file with everything in it, to read offline, mail or print.

    page.render("table2.html.j2", table, corpora, overview=..., command="python -m ...", ...)

A page's template extends `page.html.j2`, which shows all that a table is made of, and fills its blocks with what that
table alone has. What a page has not got, its `overview` or `command`, is left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pipeline.store.artifact import JsonArtifact
from pipeline.text.corpus_statistics import CorpusStatistics
from workflows import paper
from workflows.quantities import duration, flop_text, percent, rounded
from workflows.reports.corpus_plot import figures
from workflows.reports.corpus_text import collections, facts, title
from workflows.reports.overview import Overview
from workflows.tables.differences import DECODING_NAMES, OPTIMIZER_NAMES
from workflows.tables.measurements import Trained
from workflows.tables.provenance import hardware
from workflows.tables.render import FOOTNOTES, Shown, differences_table, render_markdown
from workflows.tables.text_table import ABSENT, Column, Line, TextTable, numbers

SUBSCRIPTED = re.compile("|".join(symbol for symbol in paper.SYMBOLS.values() if "_" in symbol))


def render(
    template: str,
    table: Shown,
    corpora: Iterable[CorpusStatistics] = (),
    *,
    cells: Sequence[Trained] = (),
    overview: Overview | None = None,
    command: str = "",
    **values: object,
) -> str:
    """Renders a template of this package as HTML that needs nothing outside itself.

    `corpora` are the texts that the models of the `cells` were trained on, `command` what made the page. Every page
    shows the `drawings`, `settings` and `sampled` (cells with their worst translations) among `values`. A value that a
    template names and `values` lacks is an error.
    """
    environment = Environment(
        loader=PackageLoader("workflows.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(absent=ABSENT, marked=marked, typeset=typeset)
    texts = [
        {"title": title(one), "drawings": figures(one), "collections": collections(one), "facts": facts(one)}
        for one in corpora
    ]
    main, *others = table.shown()
    shared = {
        "table": table,
        "main": main,
        "others": others,
        "differences": differences_table(table.differences),
        "notes": table.notes,
        "footnotes": FOOTNOTES,
        "cells": cells,
        "overview": overview,
        "texts": texts,
        "costs": costs(cells),
        "command": command,
        "libraries": libraries(cells),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "drawings": [],
        "settings": {},
        "sampled": [],
    }
    return environment.get_template(template).render(**{**shared, **values})


def write(artifact: JsonArtifact[Any], table: Shown, report: str) -> None:
    """Writes the three files of a table: JSON, Markdown under the same name, and `report.html`."""
    artifact.write(table)
    markdown_file = artifact.folder / Path(artifact.figures_file).with_suffix(".md")
    markdown_file.write_text(render_markdown(table), encoding="utf-8")
    (artifact.folder / "report.html").write_text(report, encoding="utf-8")


def typeset(text: str, is_number: bool) -> Markup:
    """Sets `d_k` with a subscript in words; in figures, a minus sign in `-0.30` and a small deviation in `4.9±0.1`."""
    if not is_number:
        return Markup(
            SUBSCRIPTED.sub(lambda symbol: "{}<sub>{}</sub>".format(*symbol[0].split("_")), str(escape(text)))
        )
    mean, plus_minus, deviation = text.replace("-", "−").partition("±")
    return escape(mean) + (Markup("<small>±{}</small>").format(deviation) if plus_minus else "")


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
        + (f", attention_window {window}" if (window := cell.config.attention_window) else "")
        + (f", attention_dropout {dropout}" if (dropout := cell.config.attention_dropout) else ""),
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


def costs(cells: Iterable[Trained]) -> TextTable:
    """Lists what each model cost: its training, and the translation of its test set."""
    headings = "training", "updates", "target tokens/s", "padding", "FLOP, paper’s way", "FLOP, counted", "decoding"
    lines = [
        Line(
            [
                cell.label,
                duration(cell.run.train_s),
                rounded(cell.run.updates),
                rounded(cell.run.target_tokens / cell.run.train_s) if cell.run.train_s else "",
                percent(cell.run.padding_fraction),
                flop_text(cell.cost.paper_way_flop),
                flop_text(cell.cost.counted_flop),
                _decoding_rate(cell),
            ]
        )
        for cell in cells
    ]
    return TextTable("Costs", [Column("model"), *numbers(*headings)], lines)


def _decoding_rate(cell: Trained) -> str:
    decoded = cell.decoding.test_sets.get(cell.test_set)
    return f"{decoded.sentences / decoded.seconds:.3g} sentences/s" if decoded and decoded.seconds else ""


def marked(text: str, other: str) -> Markup:
    """Returns a sentence as HTML in which the words are marked that `other` has not got in the same order."""
    words, others = text.split(), other.split()
    blocks = SequenceMatcher(a=words, b=others, autojunk=False).get_matching_blocks()
    parts: list[Markup] = []
    at = 0
    for block in blocks:
        if block.a > at:
            parts.append(Markup("<mark>{}</mark>").format(" ".join(words[at : block.a])))
        if block.size:
            parts.append(escape(" ".join(words[block.a : block.a + block.size])))
        at = block.a + block.size
    return Markup(" ").join(parts)
