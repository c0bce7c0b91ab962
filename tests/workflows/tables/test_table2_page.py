import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.evaluation.dev_scores import DevScores, DevScoresRecord
from tests.support.html_reader import Reader, csv_files, drawings, page_of
from tests.support.unspaced_text import CHINESE
from workflows.tables import table2_page
from workflows.tables.measurements import Translation


@pytest.fixture(scope="module")
def report(cell: Callable[..., Translation], tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(tmp_path_factory.getbasetemp(), table2_page.tabulate, [cell("en-de", "base"), cell("en-fr", "big")])


def test_sums_and_versions_are_of_all_models(
    cell: Callable[..., Translation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [cell("en-de", "base", data="generated text"), cell("en-fr", "big")]
    versions = property(lambda self: {"torch": "2.11" if self.model == "base" else "2.13"})
    monkeypatch.setattr(Translation, "libraries", versions)
    text = " ".join(Reader(page_of(tmp_path, table2_page.tabulate, cells)).text.split())
    assert "training took 3 min 20 s, summed over 2 models, at 8,000 target tokens/s a model." in text
    assert "Training time3 min 20 s, summed over 2 models" in text
    assert "torch 2.11 and 2.13" in text


def test_text_from_outside_is_escaped(report: str) -> None:
    assert "<b>" not in report
    assert "&lt;b&gt;Bücher&lt;/b&gt;" in report
    assert "She sleeps & dreams." in Reader(report).text


def test_every_part_is_there(report: str) -> None:
    reader = Reader(report)
    for shown in ("Transformer (base)", "not run", "Differences", "tok:13a", "N 2, d_model 128", "1.4 M", "7.389"):
        assert shown in reader.text
    # In each cell's sample, the wrong word is marked
    assert reader.text.count("Das alte Haus steht auf dem Hügel.") == 2
    assert report.count("auf dem <mark>Berg.</mark>") == report.count("auf dem <mark>Hügel.</mark>") == 2


def test_first_screen_says_what_came_out(report: str) -> None:
    text = " ".join(Reader(report).text.split())
    assert "Measured paper BLEU: EN-DE base 52.3, EN-FR big 47.3." in text  # 47.346: rounded once, from the value
    assert "2 models of 1.4 M parameters, 400 updates each" in text
    assert "three sentences, 3 pairs" in text


def test_without_a_paper_bleu_the_first_screen_has_sacre_bleu(cell: Callable[..., Translation], tmp_path: Path) -> None:
    cells = [cell("en-zh", "base", references=CHINESE[:3], translated=CHINESE[:3]), cell("en-de", "base")]
    text = " ".join(Reader(page_of(tmp_path, table2_page.tabulate, cells)).text.split())
    assert "Measured paper BLEU: EN-DE base 52.3; sacreBLEU: EN-ZH base 100.0." in text
    assert "paper BLEU not defined, sacreBLEU 100.00" in text


def test_each_figure_has_its_data_and_alternative_text(report: str) -> None:
    data = csv_files(report)
    assert [*data][2:] == ["loss.csv", "dev_perplexity.csv", "learning_rate.csv"]
    assert data["loss.csv"][1] == ["EN-DE base", "50", "5.5"]
    assert len(data["dev_perplexity.csv"]) == 1 + 2 * 9
    labels = re.findall(r'<img alt="([^"]+)"', report)
    assert len(labels) == len(drawings(report))
    assert any("EN-DE base ends at" in label for label in labels)


def test_nothing_was_run(tmp_path: Path) -> None:
    report = page_of(tmp_path, table2_page.tabulate, [])
    assert "Nothing was run: the table has only the paper’s values." in Reader(report).text
    assert drawings(report) == []


def test_several_models_are_drawn_over_seconds_and_flop(cell: Callable[..., Translation], tmp_path: Path) -> None:
    scored = {update: 20.0 + update / 50 for update in (50, 130, 400)}  # 130 has no line of its own
    series = DevScores(tmp_path).write(DevScoresRecord(series={"dev_sacrebleu": scored}))
    base, other = replace(cell("en-de", "base"), dev_scores=series), cell("en-de", "recurrent")
    files = csv_files("".join(table2_page.over_budgets([base, other])))
    names = ("dev-nll-over-seconds-of-training", "dev-nll-over-flop", "dev-sacrebleu-over-seconds-of-training")
    nll_s, nll_flop, bleu_s = (files[f"{name}.csv"] for name in names)
    assert {row[0] for row in nll_s[1:]} == {row[0] for row in nll_flop[1:]} == {"EN-DE base", "EN-DE recurrent"}
    assert [row[1:] for row in bleu_s[1:]] == [["12.5", "21"], ["37.5", "22.6"], ["100", "28"]]  # update / 4 seconds
    assert table2_page.over_budgets([base]) == []
