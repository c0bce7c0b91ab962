"""Renders Table 4 as text: for a terminal, and as a Markdown document."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from workflows.quantities import duration
from workflows.tables import notes
from workflows.tables.table4 import CandidateRow, Table4

ORIGINS = {"paper": "as printed in the paper", "measured": "measured here"}
SHORT = "F1, ≤ 40 words"


def render_terminal(table: Table4, width: int) -> RenderableType:
    """Renders the table for a terminal; it needs no more than 80 columns, so `width` decides nothing."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    grid.add_column("Table 4")
    grid.add_column("training")
    grid.add_column("F1", justify="right", no_wrap=True)
    grid.add_column("F1,\n≤ 40", justify="right", no_wrap=True)
    for origin, title in ORIGINS.items():
        grid.add_row(Text(title, style="dim italic"))
        for row in (row for row in table.rows if row.origin == origin):
            style = "dim" if row.f1 is None else "bold" if origin == "measured" else ""
            texts = (row.name, row.training, row.f1_text, row.f1_short_text)
            grid.add_row(*(Text(text, style=style) for text in texts))
        if origin == "paper":
            grid.add_section()
    shown: list[RenderableType] = [grid, ""]
    if table.candidates:
        listed = notes.columns("chosen on the dev set", "dropout", "of\nattention", "rate", "F1", "time")
        for candidate in table.candidates:
            style = "bold" if candidate.is_chosen else ""
            listed.add_row(*(Text(text, style=style) for text in candidate_texts(candidate)))
        shown += [listed, ""]
    if table.beams:
        beams = notes.columns("training", "beam", "F1, dev set")
        for beam in table.beams:
            style = "bold" if beam.is_chosen else ""
            cells = (beam.training, str(beam.beam_size), f"{beam.dev_f1:.2f}")
            beams.add_row(*(Text(text, style=style) for text in cells))
        shown += [beams, ""]
    return Group(*shown, notes.render_terminal(table.differences, table.notes))


def candidate_texts(candidate: CandidateRow) -> tuple[str, str, str, str, str, str]:
    """Returns the texts to show: name, both dropouts, learning rate, F1 on the dev set, time of the training."""
    if candidate.dev_f1 is None or candidate.train_s is None:
        return candidate.name, "", "", "", candidate.state, ""
    return (
        candidate.name,
        f"{candidate.dropout:g}",
        f"{candidate.attention_dropout:g}",
        f"× {candidate.learning_rate_scale:g}",
        f"{candidate.dev_f1:.2f}",
        duration(candidate.train_s),
    )


def search_texts(table: Table4) -> list[tuple[str, str, str, str, str]]:
    """Returns the texts to show of each search: training, search, F1, repaired sentences, kinds of repairs."""
    return [
        (
            search.training,
            search.search,
            f"{search.f1:.2f}",
            f"{search.repaired} of {search.sentences}",
            ", ".join(f"{number} {kind}" for kind, number in search.repairs.items()) or "none",
        )
        for search in table.searches
    ]


def render_markdown(table: Table4) -> str:
    """Renders the table, and everything beneath it, as a Markdown document."""
    lines = ["# Table 4", *_grid(["parser", "training", "F1", SHORT], 2, _rows(table))]
    if table.candidates:
        headings = ["candidate", "dropout", "of attention", "learning rate", "F1, dev set", "training time"]
        lines += ["", "## Chosen on the dev set", *_grid(headings, 5, map(candidate_texts, table.candidates))]
        beams = [
            (beam.training, f"{beam.beam_size}{', chosen' if beam.is_chosen else ''}", f"{beam.dev_f1:.2f}")
            for beam in table.beams
        ]
        lines += _grid(["training", "beam", "F1, dev set"], 2, beams)
    if table.searches:
        headings = ["training", "search", "F1", "repaired", "repairs"]
        lines += ["", "## Search", *_grid(headings, 0, search_texts(table))]
    if table.lengths:
        lengths = [(row.training, row.words, str(row.sentences), f"{row.f1:.2f}") for row in table.lengths]
        lines += ["", "## F1 by length", *_grid(["training", "words", "sentences", "F1"], 2, lengths)]
    return "\n".join([*lines, *notes.render_markdown(table.differences, table.notes)]) + "\n"


def _rows(table: Table4) -> list[Sequence[str]]:
    return [
        (f"{row.name}{', measured' * (row.origin == 'measured')}", row.training, row.f1_text, row.f1_short_text)
        for row in table.rows
    ]


def _grid(headings: Sequence[str], n_right: int, rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table, the last `n_right` columns of which are aligned to the right."""
    rule = "|---" * (len(headings) - n_right) + "|---:" * n_right + "|"
    return ["", notes.markdown_row(headings), rule, *map(notes.markdown_row, rows)]
