"""Table 2 from artifacts: measured cells, and cells that were not run."""

from collections.abc import Callable

from pipeline.evaluation.search_choice import DecodingChoiceFigures, SearchScores
from pipeline.settings import DecodingSettings
from tests.support.unspaced_text import CHINESE
from workflows.tables import table2
from workflows.tables.measurements import Translation
from workflows.tables.text_table import NOT_MEASURED

Cell = Callable[..., Translation]


def test_measured_cells_come_from_files_and_the_rest_says_not_run(cell: Cell) -> None:
    """The row has the numbers of scores.json and cost.json; the other three of the four cells were not run."""
    inputs = cell("en-de", "base")
    base, big = table2.rows([inputs])[-2:]
    assert inputs.scores is not None
    scores = inputs.scores.load()
    assert base.name == "Transformer (base)"
    assert base.cells["en-de"].paper_bleu == scores.paper_bleu != scores.sacrebleu
    assert base.texts()[1:3] == [f"{scores.paper_bleu:.2f}", f"{scores.sacrebleu:.2f}"]
    assert base.texts()[5:7] == [NOT_MEASURED, "3.1e12"]
    assert big.texts()[1:] == ["not run"] * 8
    assert base.texts()[3:5] == ["not run"] * 2


def test_a_cpu_has_no_cost_by_the_papers_method(cell: Cell) -> None:
    """Its cell says so and a note says why; a GPU's time counts at the rate measured on it."""
    table = table2.compute([cell("en-de", "base"), cell("en-de", "big", "NVIDIA H100")])
    assert [row.texts()[5:7] for row in table.rows[-2:]] == [[NOT_MEASURED, "3.1e12"], ["1.0e13", "3.1e12"]]
    assert [note for note in table.notes if "a small CPU" in note][1:] == [
        "No cost by the paper's method on a small CPU: a CPU's rate depends on what else runs on the machine."
    ]
    (measured,) = (note for note in table.notes if note.startswith("NVIDIA H100"))
    assert measured.endswith("0.05 TFLOP/s per device.")


def test_where_paper_bleu_is_not_defined_the_cell_says_so(cell: Cell) -> None:
    """sacreBLEU is there, by the tokenizer for the language; a note says why, and the main figures have that score."""
    table = table2.compute([cell("en-zh", "base", references=CHINESE[:3], translated=[*CHINESE[:2], CHINESE[3]])])
    base = table.rows[-2].cells["en-zh"]
    assert base.sacrebleu is not None
    assert base.texts()[:2] == ("not defined", f"{base.sacrebleu:.2f}")
    assert 50 < base.sacrebleu < 100
    assert table.figures() == {"sacreBLEU EN-ZH base": base.sacrebleu}
    assert any(note.startswith("EN-ZH: paper BLEU is not defined: spaces do not separate") for note in table.notes)
    assert any("tok:zh" in note for note in table.notes)


def test_what_was_chosen_on_the_dev_set_stands_beneath() -> None:
    """A line for each beam of a cell; a cell that was decoded with fewer α has no figure for the others."""

    def choice(chosen: tuple[int, float], *bleu: tuple[int, float, float | None]) -> DecodingChoiceFigures:
        scores = [
            SearchScores(beam_size=beam, length_penalty=penalty, dev_paper_bleu=score, dev_sacrebleu=0)
            for beam, penalty, score in bleu
        ]
        settings = DecodingSettings(beam_size=chosen[0], length_penalty=chosen[1])
        return DecodingChoiceFigures(scores=tuple(scores), settings=settings)

    base = choice((4, 0.6), (1, 0.6, 20), (1, 1, 19.5), (4, 0.6, 21.25), (4, 1, 21))
    big = choice((4, 0.6), (4, 0.6, 23))
    (shown,) = table2.chosen_searches({"EN-DE base": base, "EN-DE big": big})
    assert [column.label for column in shown.columns] == ["model", "beam", "α 0.6", "α 1", "chosen"]
    assert [line.texts for line in shown.lines] == [
        ["EN-DE base", "1", "20.00", "19.50", ""],
        ["EN-DE base", "4", "21.25", "21.00", "beam 4, α 0.6"],
        ["EN-DE big", "4", "23.00", "", "beam 4, α 0.6"],
    ]
    assert not list(table2.chosen_searches({}))
    (shown,) = table2.chosen_searches({"EN-ZH base": choice((1, 1), (1, 1, None), (1, 0.6, None))})
    assert [line.texts for line in shown.lines] == [["EN-ZH base", "1", "0.00", "0.00", "beam 1, α 1"]]
