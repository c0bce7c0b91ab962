import json
import re
from pathlib import Path

import pytest

from pipeline.artifacts import Hypotheses
from pipeline.records import DecodingRecord
from pipeline.settings import DecodingSettings
from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.tiny_dag import table_of
from tests.support.tiny_model_store import publish_model
from workflows.cli.clean import plan
from workflows.figures.drawing import AttentionFigures
from workflows.runs import begin_run

FILES = {*(f"figure{number}.svg" for number in (3, 4, 5)), *("attention.html", "figures.json"), "manifest.json"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Store(tmp_path_factory.mktemp("attention_figures") / "runs")
    run = begin_run(store, "table2", "embedded", table_of(1))
    run.save(artifacts={"average en-de base": publish_model(store).folder.name, "decode en-de base": "decoding-1"})
    (store.root / "store" / "decoding-1").mkdir()
    search = DecodingSettings(beam_size=2, length_penalty=1.4)
    decoded = DecodingRecord(sentences=3, seconds=0.5, tokens=20, settings=search, dtype="float32")
    Hypotheses(store.root / "store" / "decoding-1").write(decoded)
    return store.root


def drawn_in(runs: Path) -> list[AttentionFigures]:
    return [AttentionFigures(folder) for folder in sorted((runs / "store").glob("attention_figures-*"))]


@pytest.mark.usefixtures("ray_cluster")
def test_figures_are_drawn_once(runs: Path, command_line: CommandLine) -> None:
    drawn = command_line.here("workflows.attention_figures", "--store", str(runs))
    assert drawn.returncode == 0, drawn.stderr
    (figures,) = drawn_in(runs)
    assert {path.name for path in figures.folder.iterdir()} == FILES
    content = figures.load()
    assert [figure.number for figure in content.figures] == [3, 4, 5]
    assert [len(figure.heads) for figure in content.figures] == [2, 2, 2]
    assert content.figures[2].word is None
    for figure in content.figures:
        assert figure.caption.startswith(f"Figure {figure.number}: ")
        assert figure.caption.split(".")[0] in re.sub(r"\s+", " ", drawn.stdout)
        assert figure.translation == content.translations[figure.sentence]
        svg = (figures.folder / f"figure{figure.number}.svg").read_text(encoding="utf-8")
        assert ">⟨end⟩</text>" in svg
        both = f"layer {figure.layer}, heads {', '.join(map(str, figure.heads))}"
        whole = [f"layer {figure.layer}, head {head}" for head in figure.heads]
        word = f"“{figure.word}”: {both}"
        panels = {3: [word], 4: [whole[0], word], 5: whole}[figure.number]
        assert re.findall(r">([^<]*layer \d[^<]*)</text>", svg) == panels
        assert (figure.number != 4) or f": head {figure.heads[0]} in full, and heads" in figure.caption
    assert command_line.here("workflows.attention_figures", "--store", str(runs)).returncode == 0
    assert drawn_in(runs) == [figures]
    (link,) = (runs / "figures").iterdir()
    assert f"page: {link}/attention.html" in drawn.stdout
    assert "beam size 2, length penalty 1.4, " in (link / "attention.html").read_text(encoding="utf-8")  # its table's
    assert figures.folder.name not in {unneeded.name for unneeded in plan(Store(runs))}
    link.unlink()
    assert figures.folder.name in {unneeded.name for unneeded in plan(Store(runs))}


@pytest.mark.usefixtures("ray_cluster")
def test_ones_own_sentence_words_and_heads_in_a_folder(runs: Path, tmp_path: Path, command_line: CommandLine) -> None:
    sentence = "The lamp is old, but the man likes it."
    chosen = ["--sentence", sentence, "--word", "likes", "--word", "it", "--heads", "2", "--layer", "1"]
    options = ["figures", "--store", str(runs), "--out", str(tmp_path / "figures"), *chosen]
    drawn = command_line.here("workflows.cli", *options)
    assert drawn.returncode == 0, drawn.stderr
    figures = AttentionFigures(tmp_path / "figures")
    assert {path.name for path in figures.folder.iterdir()} == FILES
    drawn_figures = figures.load().figures
    assert {(figure.layer, figure.heads) for figure in drawn_figures} == {(1, (2,))}
    assert [figure.word for figure in drawn_figures] == ["likes", "it", None]
    page = (figures.folder / "attention.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'id="data">(.*?)</script>', page)
    assert json.loads(data)["start"] == {"kind": "encoder", "sentence": 0, "layer": 0, "heads": [1], "word": 9}
    assert "<title>Attention of en-de base, table2/embedded/1</title>" in page
    assert [figure["sentence"] for figure in json.loads(data)["sentences"]] == [sentence]
    refused = command_line.here("workflows.cli", *options, "--word", "old")
    assert refused.returncode == 2
    assert "--word likes --word it --word old: give at most two words, for Figures 3 and 4" in refused.stderr
