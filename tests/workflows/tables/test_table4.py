from collections.abc import Callable
from dataclasses import replace

from workflows.paper import TABLE_4
from workflows.tables import table4
from workflows.tables.table4 import ParserRow

Row = Callable[..., ParserRow]
F1 = table4.F1


def test_printed_rows_stand_above_measured_ones(parser_row: Row) -> None:
    *printed, _right, _parser = table4.compute([parser_row()]).tables[0].rows
    shown = [(row.name, row.values["training"], F1.text(row).strip()) for row in printed]
    assert shown == [(row.name, row.training, row.f1) for row in TABLE_4]
    assert {row.origin for row in printed} == {"paper"}


def test_the_paper_s_own_trees_make_the_paper_s_own_rows(parser_row: Row) -> None:
    table = table4.compute([parser_row(data="WSJ"), parser_row("semi-supervised", "WSJ")])
    assert [(row.name, row.values["training"]) for row in table.tables[0].rows[12:]] == [
        ("right-branching trees", "none"),
        ("Transformer (2 layers)", "WSJ only, discriminative"),
        ("Transformer (2 layers)", "semi-supervised"),
    ]
    assert "test set" not in {row.what for row in table.differences}


def test_f1_is_of_all_sentences_and_that_of_short_ones_beside_it(parser_row: Row) -> None:
    inputs = parser_row()
    scored = inputs.scores
    split = scored.load()
    short, total = split.short.model_copy(update={"f1": 12.5}), split.total.model_copy(update={"f1": 34.25})
    scored.write(split.model_copy(update={"short": short, "total": total}))
    table = table4.compute([inputs])
    main = table.tables[0]
    assert [column.text(main.rows[13]) for column in main.columns[2:4]] == ["34.25", "12.50"]
    assert table.metrics["f1.Transformer 2 layers generated trees generated trees only"] == 34.25
    assert table4.said([inputs]).startswith("The parser reaches F1 34.2 after")


def test_a_row_whose_trainings_all_failed_says_so(parser_row: Row) -> None:
    failed = replace(parser_row(), candidates=(), parser=None, hypotheses=None, parses=None, scores=None)
    results = table4.compute([failed])
    main, candidates = results.tables
    (line,) = [row for row in main.rows if row.values["f1"] == "failed"]
    assert line.name == "Transformer, generated trees"
    assert {row.values["reason"] for row in candidates.rows} == {"the loss is not finite"}
    assert f"{line.name}, generated trees only: dropout 0.3 failed: the loss is not finite" in results.notes
