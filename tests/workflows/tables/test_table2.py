import csv
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.evaluation.search_choice import DecodingChoiceRecord, SearchScores
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import MANIFEST
from pipeline.text.lines import write_lines
from tests.support.baselines import config_of
from tests.support.html_reader import Reader, csv_files, drawings, page_of
from tests.support.unspaced_text import CHINESE
from workflows.tables import table2
from workflows.tables.measured import Measured, samples
from workflows.tables.seeds import seeds_csv
from workflows.tables.table import Missing, Results

Cell = Callable[..., Measured]


def shown(results: Results, *names: str) -> list[list[str]]:
    main = results.tables[0]
    rows = [row for row in main.rows if row.origin == "measured" and row.name in names]
    return [[column.text(row) for column in main.columns[1:]] for row in rows]


def test_printed_scores_keep_their_digits_and_their_column(cell: Cell) -> None:
    """26.30 as printed, and 24.6 with a figure space, so that the decimal points align."""
    (main, *_), (french, *_) = (table2.compute([cell(pair, "base")]).tables for pair in ("en-de", "en-fr"))
    texts = {row.name: main.columns[1].text(row) for row in main.rows if row.origin == "paper"}
    names = ("GNMT + RL ensemble", "GNMT + RL", "Deep-Att + PosUnk")
    assert [*map(texts.get, names)] == ["26.30", "24.6\u2007", None]
    noted = [[row.name for row in table.rows if row.title.endswith(" *")] for table in (main, french)]
    assert noted == [[], ["Transformer (big)"]]
    assert main.explanation.endswith("newstest2014, 3,003 sentences (printed); test_a, 3 sentences (measured).")
    assert {column.block for column in main.columns} == {"", "EN-DE"}


def test_a_cpu_has_no_cost_by_the_papers_method(cell: Cell) -> None:
    """Its cell and a note say so. A GPU's time counts at its measured rate."""
    results = table2.compute([cell("en-de", "base"), cell("en-de", "big", "NVIDIA H100")])
    costs = [texts[2:] for texts in shown(results, "Transformer (base)", "Transformer (big)")]
    assert costs == [[Missing.NOT_MEASURED, "3.1e12"], ["1.0e13", "3.1e12"]]
    assert [note for note in results.notes if "a small CPU" in note][1:] == [
        "No cost by the paper's method on a small CPU: a CPU's rate depends on what else runs."
    ]
    (measured,) = (note for note in results.notes if note.startswith(("NVIDIA H100", "The paper gives one")))
    assert measured.endswith("0.05 TFLOP/s per device.")


def test_where_paper_bleu_is_not_defined_the_cell_says_so(cell: Cell) -> None:
    table = table2.compute([cell("en-zh", "base", references=CHINESE[:3], translated=[*CHINESE[:2], CHINESE[3]])])
    sacrebleu = table.tables[0].rows[-1].number("sacrebleu.en-zh")
    assert shown(table, "Transformer (base)")[0][:2] == ["not defined", f"{sacrebleu:.2f}"]
    assert 50 < sacrebleu < 100
    assert table.metrics == {"sacrebleu.EN-ZH base": sacrebleu}
    assert any(note.startswith("EN-ZH: Moses BLEU is not defined: the target language is") for note in table.notes)
    assert any("tok:zh" in note for note in table.notes)


def test_what_was_chosen_on_the_dev_set_stands_beneath() -> None:
    """A row per beam size of a cell. A cell decoded with fewer α has no value for the others."""

    def choice(chosen: tuple[int, float], *bleu: tuple[int, float, float | None]) -> DecodingChoiceRecord:
        scores = [
            SearchScores(beam_size=beam, length_penalty=penalty, dev_paper_bleu=score, dev_sacrebleu=0)
            for beam, penalty, score in bleu
        ]
        settings = DecodingSettings(beam_size=chosen[0], length_penalty=chosen[1])
        return DecodingChoiceRecord(scores=tuple(scores), settings=settings)

    base = choice((4, 0.6), (1, 0.6, 20), (1, 1, 19.5), (4, 0.6, 21.25), (4, 1, 21))
    (table,) = table2.chosen_searches({"EN-DE base": base, "EN-DE big": choice((4, 0.6), (4, 0.6, 23))})
    assert [column.label for column in table.columns] == ["model", "beam", "α 0.6", "α 1", "chosen"]
    assert [[column.text(row) for column in table.columns] for row in table.rows] == [
        ["EN-DE base", "1", "20.00", "19.50", ""],
        ["EN-DE base", "4", "21.25", "21.00", "beam 4, α 0.6"],
        ["EN-DE big", "4", "23.00", "", "beam 4, α 0.6"],
    ]
    assert not list(table2.chosen_searches({}))
    (table,) = table2.chosen_searches({"EN-ZH base": choice((1, 1), (1, 1, None), (1, 0.6, None))})
    assert [row.values for row in table.rows] == [{"beam": 1, "α 0.6": 0, "α 1": 0, "chosen": "beam 1, α 1"}]


def test_competitors_have_rows_where_they_were_named(cell: Cell) -> None:
    base = cell("en-de", "base")
    competitor = cell("en-de", "recurrent", config=config_of("recurrent"))
    results = table2.compute([base, competitor], {"en-de convolutional": "killed"})
    names = [row.name for row in results.tables[0].rows if row.origin == "measured"]
    assert names == [table2.MEASURED_NAMES[model] for model in ("base", "recurrent", "convolutional")]
    recurrent, convolutional = shown(results, names[1])[0], shown(results, names[2])[0]
    assert recurrent[3] == "3.1e12"
    assert convolutional[0] == Missing.FAILED
    of_failed = table2.compute([base], {"en-et base": "out of memory"}).tables[0]
    assert of_failed.rows[-1].values["sacrebleu.en-et"] == Missing.FAILED
    assert "EN-ET" in {column.block for column in of_failed.columns}
    (model,) = (each for each in results.differences if each.cells == ("EN-DE recurrent",) and each.what == "model")
    assert (model.paper, model.here) == (
        "transformer, N 6, d_model 512, d_ff 2048, P_drop 0.1",
        "recurrent, N 3, d_model 6, d_ff 10, P_drop 0.3",
    )


def test_seeds_are_a_mean_and_a_deviation(cell: Cell) -> None:
    right = ["Das alte Haus steht auf dem Berg.", "Ein gut-bekannter Mann liest „zwei“ Bücher.", "Sie träumt."]
    cells = [cell("en-de", "base", dev_perplexity=7.0), cell("en-de", "base", seed=2, translated=right)]
    results = table2.compute(cells, {"en-de base": "seed 3: killed"})
    first, second = (each.main.sacrebleu for each in cells)
    (row,) = (row for row in results.tables[0].rows if row.name == "Transformer (base)" and row.origin == "measured")
    assert row.values["sacrebleu.en-de"] == pytest.approx((first + second) / 2)
    assert row.values["sacrebleu.en-de.deviation"] == pytest.approx(abs(first - second) / math.sqrt(2))
    assert "±" in shown(results, "Transformer (base)")[0][1]
    (model,) = results.tables[1].rows
    assert "±" in results.tables[1].columns[4].text(model)
    assert "of the averaged weights; curves have single checkpoints" in results.tables[1].explanation
    assert "Each measured cell is the mean of 2 seeds ± their standard deviation" in " ".join(results.notes)
    assert {"EN-DE base failed: seed 3: killed"} < {*results.notes}
    assert any(note.startswith("EN-DE base, seed 2 on test_b: ") for note in results.notes)
    assert results.metrics["paper_bleu.EN-DE base"] == pytest.approx(sum(c.main.deciding[1] for c in cells) / 2)


def test_neighbours_in_the_table_are_compared(cell: Cell) -> None:
    """On their pair's test set, over all seeds; where Moses BLEU is not defined, by sacreBLEU only."""
    seeds = [cell("en-de", "base", seed=seed) for seed in (1, 2)]
    right = seeds[0].cell.test_set.references.read_text().splitlines()
    chinese = [cell("en-zh", model, references=CHINESE[:3], translated=CHINESE[:3]) for model in ("big", "base")]
    results = table2.compute([cell("en-de", "big", translated=right), *seeds, *chinese])
    (table,) = (table for table in results.tables if table.title == "Differences between models")
    (of_german, of_chinese) = ([column.text(row) for column in table.columns] for row in table.rows)
    assert of_german[:2] == ["EN-DE big − base", "1 and 2"]
    assert of_german[2] == f"+{100 - results.metrics['paper_bleu.EN-DE base']:.2f}"
    assert of_chinese == ["EN-ZH big − base", "1 and 1", *["not defined"] * 3, "+0.00", "[0.00, 0.00]", "1.000"]


@pytest.mark.parametrize(("lines", "taken"), [(3, range(3)), (10, range(10)), (19, range(10)), (25, range(0, 20, 2))])
def test_ten_samples_at_even_distances(cell: Cell, lines: int, taken: range) -> None:
    inputs = cell("en-de", "base").cell
    for path in (inputs.test_set.source, inputs.test_set.references):
        write_lines(path, [f"{path.suffix[1:]} {i}" for i in range(lines)])
    write_lines(inputs.hypotheses.folder / "test_a.de", [f"ours {i}" for i in range(lines)])
    assert [[*sample.values()] for sample in samples(inputs)] == [[f"en {i}", f"de {i}", f"ours {i}"] for i in taken]


@pytest.fixture(scope="module")
def report(cell: Cell, tmp_path_factory: pytest.TempPathFactory) -> str:
    cells = [cell("en-de", "base").cell, cell("en-fr", "big").cell]
    return page_of(tmp_path_factory.getbasetemp(), table2.tabulate, cells)


def test_sums_and_versions_are_of_all_models(cell: Cell, tmp_path: Path) -> None:
    """Where Moses BLEU is not defined, the first screen has sacreBLEU."""
    chinese = cell("en-zh", "big", references=CHINESE[:3], translated=CHINESE[:3])
    cells = [cell("en-de", "base", data="generated text").cell, chinese.cell]
    for minute, (each, version) in enumerate(zip(cells, ("2.11", "2.13"), strict=True)):
        times = {"started": f"2026-11-29T00:0{minute}:00+00:00", "seconds": 102.0}
        each.training.write_json(MANIFEST, {"libraries": {"torch": version}, **times})
    chinese.cell.cost.write_json(MANIFEST, {**times, "seconds": 600.0})
    text = " ".join(Reader(page_of(tmp_path, table2.tabulate, cells)).text.split())
    took = "11 min 00 s from text to scores, 2 min 40 s training 2 models, 2 side by side, at 10,000 target"
    assert text.count(took) == 2
    assert "torch 2.11 and 2.13" in text
    assert "Measured Moses BLEU: EN-DE base 52.3; sacreBLEU: EN-ZH big 100.0." in text
    assert "Moses BLEU not defined, sacreBLEU 100.00" in text


def test_every_part_is_there_and_text_from_outside_is_escaped(report: str) -> None:
    assert "<b>" not in report
    assert "&lt;b&gt;Bücher&lt;/b&gt;" in report
    text = " ".join(Reader(report).text.split())
    assert "Measured Moses BLEU: EN-DE base 52.3, EN-FR big 47.3." in text  # 47.346: rounded once, from the value
    assert "2 models of 1.4 M parameters, 400 updates each" in text
    parts = ("Transformer (base)", "not run", "Differences", "tok:13a", "N 2, d_model 128", "1.4 M", "7.389")
    for shown in (*parts, "three sentences, 3 pairs", "She sleeps & dreams."):
        assert shown in text
    assert '<span class="whole">EN-DE base</span>' in report  # no line breaks within it
    assert text.count("Das alte Haus steht auf dem Hügel.") == 2  # in each cell's sample, the wrong word is marked
    assert report.count("auf dem <mark>Berg.</mark>") == report.count("auf dem <mark>Hügel.</mark>") == 2


def test_each_figure_has_its_data_and_alternative_text(report: str) -> None:
    data = csv_files(report)
    assert [*data][2:] == ["loss.csv", "dev_perplexity.csv", "learning_rate.csv"]
    assert data["loss.csv"][1] == ["EN-DE base", "50", "5.5"]
    assert len(data["dev_perplexity.csv"]) == 1 + 2 * 9
    assert len(re.findall(r'<img alt="[^"]+"', report)) == len(drawings(report))
    assert 'alt="training loss, nats per token against update: EN-DE base ends at 3.5' in report


def test_several_models_are_drawn_over_seconds_and_flop(cell: Cell) -> None:
    scored = {update: 20.0 + update / 50 for update in (50, 130, 400)}  # 130 has no line of its own
    base, other = replace(cell("en-de", "base"), series={"dev_sacrebleu": scored}), cell("en-de", "recurrent")
    files = csv_files("".join(table2.over_budgets([base, other])))
    names = ("dev-nll-over-seconds-of-training", "dev-nll-over-flop", "dev-sacrebleu-over-seconds-of-training")
    nll_s, nll_flop, bleu_s = (files[f"{name}.csv"] for name in names)
    assert {row[0] for row in nll_s[1:]} == {row[0] for row in nll_flop[1:]} == {"EN-DE base", "EN-DE recurrent"}
    assert nll_s[0] == ["curve", "seconds of training", "dev NLL of single checkpoints, nats per token, over time"]
    assert [row[1:] for row in bleu_s[1:]] == [["12.5", "21"], ["37.5", "22.6"], ["100", "28"]]  # update / 4 seconds
    assert table2.over_budgets([base]) == []


@pytest.mark.parametrize(("recurrent", "compared"), [(1.02, ["base", "recurrent"]), (1.021, [])])
def test_models_compare_at_equal_flop(cell: Cell, recurrent: float, compared: list[str]) -> None:
    """Within 2%, of base and its competitors in each language pair: whatever big and other pairs have spent."""
    spent = {("en-de", "base"): 1.0, ("en-de", "recurrent"): recurrent, ("en-de", "big"): 9.0, ("en-fr", "base"): 5.0}
    models = []
    for (pair, name), flop in spent.items():
        model = cell(pair, name, dev_perplexity=2 + flop)
        models.append(replace(model, costs=model.costs.model_copy(update={"counted_flop": 1e12 * flop})))
    rows = [row for row in csv.DictReader(seeds_csv(models).splitlines()) if row.get("equal_flop_dev_nll")]
    assert [row["model"] for row in rows] == compared
    assert all(row["equal_flop_dev_nll"] == row["final_dev_nll"] for row in rows)
