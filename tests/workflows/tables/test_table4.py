"""Table 4 from the files of its stages: rows, the choice, what differs, and its renderings."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from nltk.tree import Tree

from pipeline.evaluation.tree_scores import TreeScoringFigures
from pipeline.parsing.treebank import GOLD_COLLECTION, LANGUAGES, RECOMBINED_COLLECTION
from pipeline.parsing.trees import drawn
from pipeline.store.artifact import Context
from tests.support.html_reader import Reader
from workflows import paper
from workflows.engine.dag import to_artifact
from workflows.paper import TABLE_4
from workflows.reports.table4 import said, scores, tabulate
from workflows.tables import table4
from workflows.tables.parser_differences import ASPECTS_OF_PARSERS
from workflows.tables.parser_measurements import ParserRow
from workflows.tables.render import render_markdown

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
    measured = inputs.free.scores.load().splits["test"]
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


def test_rows_of_other_trees_are_named(parser_row: Row) -> None:
    """One row of them is enough to say that it cannot be compared with the printed ones."""
    table = table4.compute([parser_row(data="WSJ"), parser_row("semi-supervised")])
    assert any("rows are of WSJ and generated trees, not of the paper's treebank" in note for note in table.notes)
    assert not any("--silver FILE adds" in note for note in table.notes)


def test_what_differs_is_told(parser_row: Row) -> None:
    """Sizes, vocabulary and data of the tiny parser; not what the paper chose on its dev set and does not print."""
    table = table4.compute([parser_row()])
    differing = {row.what: row for row in table.differences}
    assert "d_model 1024" in differing["model"].paper
    assert "P_drop" not in differing["model"].paper
    assert differing["vocabulary"].paper == "about 16,000 pieces"
    assert differing["training data"].here == "generated trees, 300 trees"
    assert differing["search on the dev set"].paper == "beam 21"
    assert differing["dropout of attention weights"].paper == "chosen on section 22, not printed"
    assert differing["dropout of attention weights"].here == "0, the only one tried"


def test_dropout_of_attention_weights_is_chosen_and_printed(parser_row: Row) -> None:
    """Where several were tried, nothing differs from §6.3, and each candidate's is shown."""
    table = table4.compute([parser_row(of_attention=(0.2, 0.0))])
    assert "dropout of attention weights" not in {row.what for row in table.differences}
    assert "attention" not in {row.what: row for row in table.differences}["model"].here
    assert [row.attention_dropout for row in table.candidates] == [0.2, 0.0, None]
    markdown = render_markdown(table)
    assert "| candidate | dropout | of attention | learning rate |" in markdown
    assert "| dropout 0, chosen | 0.1 | 0.2 | × 1 |" in markdown


@pytest.mark.parametrize(
    ("pairs", "recombined", "here"),
    [
        (44_000, 0, ""),
        (36_000, 0, ""),
        (44_001, 0, "WSJ, 44,001 trees"),
        (35_999, 0, "WSJ, 35,999 trees"),
        (40_000, 5_000, "WSJ, 35,000 trees, and 5,000 recombined of their constituents"),
    ],
)
def test_trees_are_the_paper_s_within_a_tenth(parser_row: Row, pairs: int, recombined: int, here: str) -> None:
    """The paper rounds their number; recombined trees differ however many there are."""
    parser = parser_row(data="WSJ").candidates[0]
    to_artifact(parser.corpus).describe(
        LANGUAGES, {"train": [pairs - recombined, recombined]}, {}, [GOLD_COLLECTION, RECOMBINED_COLLECTION]
    )
    printed = paper.parser_experiment("WSJ only, discriminative")
    assert ASPECTS_OF_PARSERS["training data"](parser, printed) == ("WSJ, about 40,000 trees", here)


def test_f1_is_of_all_sentences_and_that_of_short_ones_beside_it(parser_row: Row) -> None:
    """Also in the first screen of the report, in its sentence, and in MLflow."""
    inputs = parser_row()
    assert inputs.free is not None
    scored = inputs.free.scores
    split = scored.load().splits["test"]
    short, total = split.short.model_copy(update={"f1": 12.5}), split.total.model_copy(update={"f1": 34.25})
    scored.write(TreeScoringFigures(splits={"test": split.model_copy(update={"short": short, "total": total})}))
    table = table4.compute([inputs])
    assert table.rows[13].texts()[2:4] == ["34.25", "12.50"]
    assert table.searches[0].f1 == 34.25
    assert table.figures()["f1.Transformer 2 layers generated trees generated trees only"] == 34.25
    assert ["Transformer, generated trees only", "91.3", "34.25"] in scores(table, [inputs])
    assert said([inputs]).startswith("The parser reaches F1 34.2 after")


def test_a_row_whose_trainings_all_failed_says_so(parser_row: Row) -> None:
    """No figure, and the reason of each."""
    made = parser_row()
    failed = ParserRow(made.training, made.data, "test", (), made.failures, made.baseline, None, None)
    table = table4.compute([failed])
    (line,) = [row for row in table.rows if row.state == "failed"]
    assert (line.f1, line.texts()[2]) == (None, "failed")
    assert "the loss is not finite" in line.reason


def test_stage_writes_what_it_reads_back(parser_row: Row, tmp_path: Path) -> None:
    """The JSON gives the same table again, as does the Markdown, and the report has the drawn trees."""
    (tmp_path / "table").mkdir()
    made = tabulate(Context(tmp_path / "table"), [parser_row()])
    markdown = (made.folder / "table4.md").read_text(encoding="utf-8")
    assert render_markdown(made.load()) == markdown
    report = (made.folder / "report.html").read_text(encoding="utf-8")
    assert report.count('class="tree"') == 2 * 3  # gold and parse of three sentences at even distances
    reader = Reader(report)
    (transformer,) = [row for row in made.load().rows if row.state == "measured" and row.name.startswith("Transformer")]
    plain = {row[0]: row[1:] for row in reader.rows if len(row) == 3}
    assert plain["Transformer, generated trees only"] == ["91.3", transformer.texts()[2]]
    assert plain["Transformer, semi-supervised"] == ["92.7", "not run"]
    result = (
        f"The parser reaches F1 {transformer.f1:.1f} after training on generated trees only, right-branching trees "
    )
    assert result in reader.text
    assert "; the paper’s figures are of another treebank." in reader.text
    for shown in ("Outputs that were no tree", "F1 by length", "Chosen on the dev set", "Learning curves"):
        assert shown in report
    figures = made.load().figures()
    assert all(math.isfinite(value) for value in figures.values())
    assert list(figures) == [
        "f1.right-branching trees generated trees none",
        "f1.Transformer 2 layers generated trees generated trees only",
    ]


def test_trees_of_any_depth_are_drawn() -> None:
    """Words stand in one line at the bottom; a tree beyond Python's recursion is written in brackets."""
    tree = Tree.fromstring("(S (NP (DT the) (NN man)) (VP (VBZ hears) (NP (DT a) (NN dog))))")
    lines = drawn(tree).rstrip("\n").split("\n")
    assert lines[0].strip() == "S"
    assert lines[-1].split() == ["the", "man", "hears", "a", "dog"]
    for _ in range(3000):
        tree = Tree("X", [tree])
    assert drawn(tree).startswith("(X (X (X")
