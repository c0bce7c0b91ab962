import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from pipeline.settings import TrainingSettings
from pipeline.text.corpus_statistics import Collection, CorpusStatistics, Lengths, Plan, measure
from pipeline.text.overlap import Overlap
from tests.support.contexts import new_context
from tests.support.html_reader import Reader, assert_asks_for_nothing_outside, drawings, page_of
from tests.support.tiny_text import prepare_text
from workflows.tables import table2
from workflows.tables.corpus import CorpusReport, report_corpus

OVERLAP = "12 source and 10 target sentences of dev's 500 (9 whole pairs)"
REASONS = ("blank", "too_long", "ratio", "invalid", "too_many_tokens")


def collection(name: str, kept: int, *dropped: int) -> Collection:
    return Collection(name, kept + sum(dropped), kept, dict(zip(REASONS, dropped, strict=True)), 0.0002, {"copy": 7})


def lengths(language: str, *sentences: int) -> Lengths:
    mean = sum(n * count for n, count in enumerate(sentences, start=1)) / sum(sentences)
    return Lengths(language, mean, {"0.5": 2, "0.99": len(sentences), "0.999": len(sentences)}, [0, *sentences])


STATISTICS = CorpusStatistics(
    data="two collections",
    collections=[collection("europarl-v7", 1_900, 60, 0, 30, 0, 10), collection("<b>web & more</b>", 1_000, *(0,) * 5)],
    unknown={"train": 0.0002, "dev": 0.0},
    normalised=12,
    lengths=(lengths("en", 100, 1_500, 1_000, 300), lengths("de", 50, 900, 1_000, 700, 250)),
    sample={"size": 500, "sampled_pairs": 1_000, "train_pairs": 2_910, "words": 4_200},
    plan=Plan(budget_tokens=400, updates=26, padding_fraction=0.0421, problem=""),
    overlaps=[Overlap("dev", 500, source=12, target=10, pairs=9)],
)


def test_figures_and_drawings_of_text(parallel_text: Path, tmp_path: Path) -> None:
    text = prepare_text(tmp_path, parallel_text)
    training = TrainingSettings(budget_tokens=3000, seed=1)
    made = report_corpus(new_context(tmp_path / "report"), *text, "two collections", training)
    measured = measure("two collections", *text, training)
    assert CorpusReport(tmp_path / "report").load() == measured
    assert json.loads((made.folder / "corpus_report.json").read_text())["plan"]["updates"] == measured.plan.updates
    assert {path.name for path in made.folder.iterdir()} == {"corpus_report.json", "corpus_report.svg"}
    root = ElementTree.parse(made.folder / "corpus_report.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "EN-DE, two collections: lengths" in {element.text for element in root.iter() if element.text}
    assert made.summary.endswith(" padding")


def test_a_report_shows_each_text(tmp_path: Path) -> None:
    french = replace(STATISTICS, lengths=(STATISTICS.lengths[0], replace(STATISTICS.lengths[1], language="fr")))
    reports = []
    for name, statistics in (("de", STATISTICS), ("fr", french)):
        (tmp_path / name).mkdir()
        reports.append(CorpusReport(tmp_path / name).write(statistics))
        assert reports[-1].summary.endswith(f"; {OVERLAP} in the training text")
    html = page_of(tmp_path, table2.tabulate, [], {}, reports)
    assert_asks_for_nothing_outside(html)
    assert len(drawings(html)) == 2
    reader = Reader(html)
    assert ["europarl-v7", "2,000", "1,900", "60", "0", "30", "0", "10", "", "7", "", "0.02%"] in reader.rows
    assert ["all", "3,000", "2,900", "60", "0", "30", "0", "10", "", "14", "", "0.02%"] in reader.rows
    assert "<b>web" not in html
    assert "Training text" in reader.text
    assert "EN-FR, two collections" in reader.text
    assert OVERLAP in reader.text
    without = page_of(tmp_path, table2.tabulate, [])
    assert ("Training text" in Reader(without).text, drawings(without)) == (False, [])
    assert "Nothing was run: the table has only the paper’s values." in Reader(without).text
