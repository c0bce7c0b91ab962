"""Table 4 from the files of its stages: rows, printed and measured."""

from collections.abc import Callable

from workflows.paper import TABLE_4
from workflows.reports.table4 import said, scores
from workflows.tables import table4
from workflows.tables.parser_measurements import ParserRow

Row = Callable[..., ParserRow]


def test_printed_rows_stand_above_measured_ones(parser_row: Row) -> None:
    """The paper's twelve, the baseline, the chosen parser's F1, and the row that was not run."""
    inputs = parser_row()
    table = table4.compute([inputs])
    assert [tuple(row.texts()[:3]) for row in table.rows[:12]] == [(row.name, row.training, row.f1) for row in TABLE_4]
    assert {row.origin for row in table.rows[:12]} == {"paper"}
    right, parser, silver = table.rows[12:]
    assert (right.name, right.training) == ("right-branching trees, generated trees", "none")
    assert (parser.name, parser.training) == ("Transformer (2 layers), generated trees", "generated trees only")
    assert inputs.free is not None
    measured = inputs.free.scores.load()
    for name in ("f1", "recall", "precision", "complete_match", "sentences", "valid"):
        assert getattr(parser, name) == getattr(measured.total, name)
    assert [(row.sentences, row.f1) for row in table.lengths] == [
        (row.sentences, row.f1) for row in measured.by_length.values()
    ]
    assert right.f1 is not None
    assert parser.f1 is not None
    assert right.f1 < parser.f1 < 100
    assert parser.f1_short == measured.short.f1
    assert table.searches[0].f1 == parser.f1
    assert (silver.training, silver.f1, silver.texts()[2]) == ("semi-supervised", None, "not run")


def test_the_paper_s_own_trees_make_the_paper_s_own_rows(parser_row: Row) -> None:
    """On WSJ the measured rows are named and trained as printed; data and test set do not differ then."""
    table = table4.compute([parser_row(data="WSJ"), parser_row("semi-supervised", "WSJ")])
    assert [(row.name, row.training) for row in table.rows[12:]] == [
        ("right-branching trees", "none"),
        ("Transformer (2 layers)", "WSJ only, discriminative"),
        ("Transformer (2 layers)", "semi-supervised"),
    ]
    assert "test set" not in {row.what for row in table.differences}
    assert not any("cannot be compared" in note for note in table.notes)


def test_f1_is_of_all_sentences_and_that_of_short_ones_beside_it(parser_row: Row) -> None:
    """Also in the first screen of the report, in its sentence, and in MLflow."""
    inputs = parser_row()
    assert inputs.free is not None
    scored = inputs.free.scores
    split = scored.load()
    short, total = split.short.model_copy(update={"f1": 12.5}), split.total.model_copy(update={"f1": 34.25})
    scored.write(split.model_copy(update={"short": short, "total": total}))
    table = table4.compute([inputs])
    assert table.rows[13].texts()[2:4] == ["34.25", "12.50"]
    assert table.searches[0].f1 == 34.25
    assert table.figures()["f1.Transformer 2 layers generated trees generated trees only"] == 34.25
    assert ["Transformer, generated trees only", "91.3", "34.25"] in scores(table, [inputs])
    assert said([inputs]).startswith("The parser reaches F1 34.2 after")


def test_a_row_whose_trainings_all_failed_says_so(parser_row: Row) -> None:
    """No figure, and the reason of each."""
    made = parser_row()
    failed = ParserRow(made.training, made.data, (), made.failures, made.baseline, None, None)
    table = table4.compute([failed])
    (line,) = [row for row in table.rows if row.state == "failed"]
    assert (line.f1, line.texts()[2]) == (None, "failed")
    assert "the loss is not finite" in line.reason
