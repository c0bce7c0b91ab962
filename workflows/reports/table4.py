"""Renders the report of Table 4, which is one HTML file."""

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.text.corpus_statistics import CorpusStatistics
from workflows.reports import page
from workflows.reports.page import AGAINST, Against, learning_curve
from workflows.reports.svg import COLORS, Curve, curves
from workflows.reports.tree_drawing import MARK, tree_drawing
from workflows.tables.parser_measurements import Candidate, ParserRow
from workflows.tables.table4 import Table4, name_of, training_of
from workflows.tables.table4_text import ORIGINS, SHORT, candidate_texts, search_texts


def render(table: Table4, rows: Sequence[ParserRow], corpora: Sequence[CorpusStatistics] = ()) -> str:
    """Renders the report as HTML that needs nothing outside itself; `corpora` are the trees behind the rows."""
    candidates = [one for row in rows for one in row.candidates]
    colors = {one.label: COLORS[i % len(COLORS)] for i, one in enumerate(candidates)}
    chosen = [one for row in rows if (one := row.chosen)]
    return page.render(
        "table4.html.j2",
        corpora,
        table=table,
        origins=ORIGINS,
        short=SHORT,
        footnotes=frozenset(),
        cells=candidates,
        rows=rows,
        name_of=name_of,
        training_of=training_of,
        candidate_texts=candidate_texts,
        search_texts=search_texts(table),
        mark=MARK,
        trees={row.training: _trees(row) for row in rows},
        colors=colors,
        drawings=_drawings(candidates, colors),
        settings={one.label: page.settings(one) for one in chosen},
        libraries=page.libraries(candidates),
    )


def _trees(row: ParserRow) -> list[tuple[Markup, Markup]]:
    """Draws gold trees, and beside each the parser's."""
    return [
        (tree_drawing(gold, tree, f"gold tree {i}"), tree_drawing(tree, gold, f"parse {i}"))
        for i, (gold, tree) in enumerate(row.drawn, start=1)
    ]


def _drawings(candidates: Sequence[Candidate], colors: dict[str, str]) -> list[Markup]:
    """Draws dev perplexity against updates and against minutes, and the training loss."""

    def lines(against: Against, figure: str) -> list[Curve]:
        return [Curve(learning_curve(one, against, figure), one.label, colors[one.label]) for one in candidates]

    def f1_lines(against: Against) -> list[Curve]:
        found = []
        for one in candidates:
            at = {line["update"]: AGAINST[against](line) for line in one.metrics}
            points = [(at[update], f1) for update, f1 in (one.f1_over_time or {}).items() if update in at]
            found.append(Curve(points, one.label, colors[one.label]))
        return found

    if not candidates:
        return []
    scored = any(one.f1_over_time for one in candidates)
    return [
        *(curves("F1, dev set", against, f1_lines(against)) for against in AGAINST if scored),
        *(curves("dev perplexity", against, lines(against, "dev_perplexity"), log=True) for against in AGAINST),
        curves("training loss", "updates", lines("updates", "loss")),
    ]
