"""The report of prepared text: its files are made from real text, its words and plots from made-up figures."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeline.settings import PlanSettings
from pipeline.store.artifact import Context
from pipeline.text.corpus_statistics import Plan, measure
from tests.support.html_reader import Reader, assert_asks_for_nothing_outside, csv_files, drawings
from tests.support.tiny_statistics import STATISTICS, collection
from tests.support.tiny_text import prepare_text
from workflows.quantities import percent
from workflows.reports import table2 as table2_report
from workflows.reports.corpus import CorpusReport, report_corpus
from workflows.reports.corpus_plot import lengths_figure, lengths_svg
from workflows.reports.corpus_text import facts, metrics, rows, summary
from workflows.tables import table2


def test_figures_and_drawings_of_text(parallel_text: Path, tmp_path: Path) -> None:
    """The JSON reads back as what was measured; any XML reader can parse the SVG, which names pair and data."""
    text = prepare_text(tmp_path, parallel_text)
    plan = PlanSettings(budget_tokens=3000, micro_batches=2, seed=1)
    (tmp_path / "report").mkdir()
    made = report_corpus(Context(tmp_path / "report"), *text, "two collections", plan)
    measured = measure("two collections", *text, plan)
    assert CorpusReport(tmp_path / "report").load() == measured
    assert json.loads((made.folder / "corpus_report.json").read_text())["plan"]["updates"] == measured.plan.updates
    assert {path.name for path in made.folder.iterdir()} == {"corpus_report.json", "corpus_report.svg"}
    root = ElementTree.parse(made.folder / "corpus_report.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = {element.text for element in root.iter() if element.text}
    assert "EN-DE, two collections: lengths" in texts
    assert made.summary.endswith(" padding")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.0421, "4.2 %"),
        (0.5, "50 %"),
        (0.1, "10 %"),
        (0.99996, "99.996 %"),
        (0.000_003_12, "0.00031 %"),
        (0.967, "96.7 %"),
    ],
)
def test_percentages_tell_all_or_nothing_only_where_it_is(fraction: float, text: str) -> None:
    """A percentage shows two digits of the smaller part."""
    assert percent(fraction) == text


def test_words() -> None:
    """The summary, the collections, the facts and the metrics have the figures of the statistics."""
    assert summary(STATISTICS) == (
        "2,900 of 3,000 training pairs kept, 2.5 source and 3.5 target tokens per pair, 0.02 % unknown, 4.2 % padding"
    )
    assert [row.name for row in rows(STATISTICS)] == ["europarl-v7", "<b>web & more</b>", "all"]
    assert rows(STATISTICS)[2] == collection("all", 2_900, 60, 0, 30, 10)
    assert facts(STATISTICS)["vocabulary"] == "500 pieces, learned from 1,000 of 2,910 pairs with 4,200 distinct words"
    assert facts(STATISTICS)["unknown tokens"] == "train 0.02 %, dev 0 %"
    assert facts(STATISTICS)["one epoch"] == "26 updates of up to 400 tokens per side, each in 2 micro-batches"
    assert metrics(STATISTICS, "en-de")["padding_fraction.en-de"] == 0.0421
    assert metrics(STATISTICS, "en-de")["pairs_dropped.ratio.en-de"] == 30


def test_without_a_plan_the_problem_is_shown() -> None:
    """It takes the place of the plan's figures."""
    without = replace(STATISTICS, plan=Plan(400, 2, 1, None, None, "an update would hold 3 tokens"))
    assert facts(without)["padding"] == "an update would hold 3 tokens"
    assert "one epoch" not in facts(without)
    assert "padding" not in summary(without)
    assert not {"padding_fraction.en-de", "updates_an_epoch.en-de"} & metrics(without, "en-de").keys()


def test_the_drawing_names_both_sides() -> None:
    """Each with its mean; its data are the counts by length, also where one side is longer than the other."""
    assert {"en, mean 2.5", "de, mean 3.1"} <= {
        element.text for element in ElementTree.fromstring(lengths_svg(STATISTICS)).iter()
    }
    english, german = STATISTICS.lengths
    longer = replace(STATISTICS, lengths=(english, replace(german, sentences=[*german.sentences, 0, 7])))
    heading, *rows = csv_files(lengths_figure(longer))["lengths-en-de.csv"]
    assert heading == ["tokens", "en", "de"]
    assert rows[-1] == [str(len(german.sentences) + 1), "0", "7"]
    assert [int(row[1]) for row in rows if row[1] != "0"] == [n for n in english.sentences if n]


def test_a_report_shows_each_text() -> None:
    """One page has the plots and counts of both language pairs, and needs nothing outside itself."""
    french = replace(STATISTICS, lengths=(STATISTICS.lengths[0], replace(STATISTICS.lengths[1], language="fr")))
    html = table2_report.render(table2.compute([]), [], [STATISTICS, french])
    assert_asks_for_nothing_outside(html)
    assert len(drawings(html)) == 2
    reader = Reader(html)
    assert ["europarl-v7", "2,000", "1,900", "60", "0", "30", "10", "0.02 %"] in reader.rows
    assert ["all", "3,000", "2,900", "60", "0", "30", "10", "0.02 %"] in reader.rows
    assert "<b>web" not in html
    assert "Training text" in reader.text
    assert "EN-FR, two collections" in reader.text
    assert "Training text" not in Reader(table2_report.render(table2.compute([]), [])).text
