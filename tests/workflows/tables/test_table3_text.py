"""Table 3 as text: every row and figure is there, on terminals of two widths and in Markdown."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from model.config import TransformerConfig
from pipeline.settings import TrainingSettings
from workflows import paper
from workflows.profiles import Grid
from workflows.tables import table3, table3_text
from workflows.tables.orderings import OrderingOutcome
from workflows.tables.table3 import Figure, RowInputs, Table3
from workflows.tables.table3_rows import rows as rows_of

TrainedRow = Callable[..., RowInputs]
SMALL = Grid(
    training=TrainingSettings(
        model=TransformerConfig(
            vocabulary_size=1500, n_layers=3, d_model=96, d_ff=384, n_heads=8, d_k=12, d_v=12, dropout=0.1
        ),
        updates=690,
    )
)
NAMES = [variation.name for variation in paper.TABLE_3]


@pytest.fixture
def full(trained_row: TrainedRow) -> Table3:
    """Every row of Table 3 with two seeds on a small base, but for three that were not finished.

    Base and C4 have not converged.
    """
    unfinished: dict[str, Any] = {
        "B2": ("failed", "out of memory"),
        "C3": ("not run", ""),
        "D1": ("stopped", "by the scheduler after update 150"),
    }
    inputs = []
    for number, varied in enumerate(rows_of(SMALL)):
        if varied.name in unfinished:
            inputs.append(RowInputs(varied.name, varied.difference, (), *unfinished[varied.name]))
            continue
        perplexities, wrong = (6 + number / 10, 6.4 + number / 7), (1 + number % 4, 2 + number % 3)
        falls = 0.2 if varied.name in ("base", "C4") else 0.0
        trained = trained_row(varied.name, *perplexities, errors=wrong, train_s=700.0 * number or 0.1, last_fall=falls)
        inputs.append(RowInputs(varied.name, varied.difference, trained.trainings))
    return table3.compute(inputs)[0]


def text_of(table: Table3, width: int) -> str:
    """Returns what a terminal of that width shows."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table3_text.render_terminal(table, width))
    return console.export_text()


def shown(figure: Figure) -> str:
    """Returns a figure as the table shows it, with two digits of its deviation."""
    assert figure.deviation is not None
    digits = f"{figure.deviation:.2f}" if figure.deviation < 1 else f"{figure.deviation:.1f}"
    return f"{figure.mean:.2f}±{digits if figure.deviation < 10 else round(figure.deviation)}"


def test_wide_terminal_has_all_columns_side_by_side(full: Table3) -> None:
    """At 120 columns each row is one line with all its figures or its state, and groups are set apart."""
    text = text_of(full, 120)
    assert max(map(len, text.split("\n"))) <= 120
    assert "…" not in text
    lines = {line.split(" ")[0]: line for line in text.split("\n\n")[0].split("\n") if not line.startswith(" ")}
    assert [name for name in lines if name in NAMES] == NAMES
    assert text.split("\n\n")[0].count("─" * 100) == 7  # beneath the headings, between base, A, B, C, D, E and big
    base, first = full.rows[0].trained, full.rows[1].trained
    assert base is not None
    assert first is not None
    assert first.from_base is not None
    perplexity, bleu, sacrebleu = shown(first.perplexity), shown(first.bleu), f"{first.sacrebleu.mean:.2f}"
    deltas = [f"{first.from_base[kind]:+.2f}" for kind in paper.KINDS]
    figures = ["5.29", "+0.37", perplexity, deltas[0], "24.9", "-0.9", bleu, deltas[1], sacrebleu, "1.4"]
    assert lines["A1"].split()[-15:] == [*figures, "11", "min", "40", "s", "3.1e12"]
    scores = ["4.92", shown(base.perplexity), "25.8", shown(base.bleu), f"{base.sacrebleu.mean:.2f}"]
    assert lines["base"].split() == ["base", "not", "converged", *scores, "65", "1.4", "0", "s", "3.1e12"]
    beneath = text.split("\n")[text.split("\n").index(lines["C4"]) + 1 :]
    assert next(line.strip() for line in beneath if "d_v" not in line) == "not converged"
    assert text.split("\n\n")[0].count("not converged") == 2
    for name, state in (("B2", "failed"), ("C3", "not run"), ("D1", "stopped")):
        assert lines[name].count(state) == 6


def test_narrow_terminal_has_bleu_beneath_perplexity(full: Table3) -> None:
    """At 80 columns there are two tables, each with all rows, and no figure is broken."""
    text = text_of(full, 80)
    assert max(map(len, text.split("\n"))) <= 80
    assert "…" not in text
    first, second = text.split("\n\n")[:2]
    for part in (first, second):
        assert [line.split(" ")[0] for line in part.split("\n") if line[:1].isalpha()][-20:] == NAMES
        assert "d_model 192," in part
        assert "updates 2070" in part
    assert "PPL" in first
    assert "BLEU" not in first
    for line in full.rows:
        if line.trained:
            assert shown(line.trained.perplexity) in first
            assert shown(line.trained.bleu) in second
            assert f"{line.trained.sacrebleu.mean:.2f}" in second


@pytest.mark.parametrize("width", [120, 80])
def test_changes_break_behind_commas(full: Table3, width: int) -> None:
    """A size is always on the same line as its symbol."""
    first = text_of(full, width).split("\n\n")[0]
    assert "d_v 96" in first
    assert re.findall(r"(?:d_k|d_v|d_model|d_ff|P_drop|ε_ls|updates)(?! \d)", first) == []


@pytest.mark.parametrize("width", [120, 80])
def test_beneath_the_table_stand_correlation_orderings_differences_and_notes(full: Table3, width: int) -> None:
    """Correlation, claims, differences and notes follow the table, each in words."""
    text = " ".join(text_of(full, width).split())
    correlations = {one.kind: one.spearman for one in full.correlations}
    assert f"{correlations['perplexity']:.2f} for perplexity (17 rows)" in text
    assert f"{correlations['bleu']:.2f} for BLEU (17 rows)" in text
    for shown in (
        "C1 → C2 → base → C3 yes unknown no unknown",
        "16 of 19 rows → big yes",
        "Noise: 2 trainings of base",
        "Not converged (base, C4):",
        "what differs",
        "newstest2013, 3,000",
        "tok:13a",
        "B2 failed: out of memory",
        "D1 stopped: by the scheduler after update 150",
    ):
        assert shown in text


def test_base_of_the_table_has_no_difference_from_itself(trained_row: TrainedRow) -> None:
    """Base's own Δ cells are empty; those of a row equal to base are zero, without a minus sign."""
    table, _ = table3.compute([trained_row("base", 7.004), trained_row("E", 7.0)])
    lines = {line.split(" ")[0]: line.split() for line in text_of(table, 120).split("\n")}
    assert not any(text.startswith(("+", "-")) for text in lines["base"])
    assert [text for text in lines["E"] if text.startswith(("+", "-"))] == ["+0.00", "+0.00", "-0.1", "+0.00"]


def test_names_that_look_like_markup_are_shown(trained_row: TrainedRow) -> None:
    """A user may choose any names and values for a row of their own."""
    own = RowInputs("[bold]", {"dtype": "[red]"}, trained_row("x", 7.0).trainings)
    assert "[bold] dtype [red]" in " ".join(text_of(table3.compute([own])[0], 120).split())


def cells_of(lines: Sequence[str], name: str) -> list[str]:
    """Returns the cells of a row's line in Markdown."""
    return next(line for line in lines if line.startswith(f"| {name} |"))[2:-2].split(" | ")


@pytest.mark.parametrize(
    ("relation", "rows", "reversed_kinds", "order"),
    [
        ("better", ("C1", "base"), (), "C1 → base"),
        ("better", ("D3", "base"), ("perplexity",), "PPL base → D3, BLEU D3 → base"),
        ("best", ("base", "A1", "big"), (), "2 of 19 rows → big"),
        ("equal", ("E", "base"), (), "E = base"),
    ],
)
def test_orders_are_written_by_their_relation(
    relation: paper.Relation, rows: tuple[str, ...], reversed_kinds: tuple[paper.Kind, ...], order: str
) -> None:
    """The claim about the best row says how many of the others were measured."""
    outcome = OrderingOutcome("said", rows, {}, {}, relation, reversed_kinds)
    assert table3_text.order_text(outcome) == order


def test_answers_without_measured_noise_have_a_question_mark() -> None:
    """With noise the verdict stands instead; what was not measured is unknown either way."""
    signs: dict[paper.Kind, bool | None] = {"perplexity": True, "bleu": False}
    unsure = OrderingOutcome("said", ("A1", "base"), signs, signs)
    assert [table3_text.answer(unsure, kind, "here") for kind in paper.KINDS] == ["yes?", "no?"]
    assert [table3_text.answer(unsure, kind, "paper") for kind in paper.KINDS] == ["yes", "no"]
    sure = replace(unsure, verdict={"perplexity": "within noise", "bleu": "no"})
    assert [table3_text.answer(sure, kind, "here") for kind in paper.KINDS] == ["within noise", "no"]
    missing = replace(unsure, measured=dict.fromkeys(paper.KINDS))
    assert table3_text.answer(missing, "bleu", "here") == "unknown"


def test_markdown_has_a_line_a_row_with_all_columns(full: Table3) -> None:
    """A line has the change here, the change in the paper and the figures; sentences and tables follow."""
    markdown = table3_text.render_markdown(full)
    head, *beneath = markdown.split("\n## ")
    lines = [line for line in head.split("\n") if line.startswith("| ")]
    assert len(lines) == 1 + 20
    assert {line.count("|") for line in lines} == {17}
    assert cells_of(lines, "base")[1] == "not converged"
    assert cells_of(lines, "C4")[1] == "d_model 48, d_k 6, d_v 6; not converged"
    assert cells_of(lines, "A1")[1:5] == ["h 1, d_k 96, d_v 96", "h 1, d_k 512, d_v 512", "5.29", "+0.37"]
    assert cells_of(lines, "A1")[-2:] == ["11 min 40 s", "3.1e12"]
    printed = ["4.88", "-0.04", "not run", "", "25.5", "-0.3", "not run", "", "not run", "80"]
    assert cells_of(lines, "C3")[3:] == printed + ["not run"] * 3
    assert cells_of(lines, "big")[2].endswith("updates 300000")
    assert "Spearman" in head
    assert [part.split("\n")[0] for part in beneath] == [
        "What the paper concludes from it",
        "What differs from the paper",
        "How to read the table",
    ]
    assert "| more layers are better | C1 → C2 → base → C3 | yes | unknown | no | unknown |" in beneath[0]


def test_a_table_of_nothing_is_shown_too() -> None:
    """Where no row was run, the table has states and printed figures, and no claim or correlation."""
    table, measured = table3.compute([RowInputs(v.name, v.difference, ()) for v in paper.TABLE_3])
    assert (measured, table.orderings, table.correlations, table.differences) == ({}, [], [], [])
    assert text_of(table, 120).count("not run") == 6 * 20
    assert table3_text.render_markdown(table).count("not run") == 6 * 20
    base_alone, _ = table3.compute([RowInputs("base", {}, ())])
    assert "not run" in text_of(base_alone, 120)
