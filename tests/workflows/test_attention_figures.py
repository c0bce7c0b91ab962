"""Attention figures from a store with a model, as a user makes them: by both commands, and served."""

import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.store.store import LocalStore
from tests.support.command_line import CommandLine
from tests.support.html_reader import Reader
from tests.support.tiny_model_store import publish_model
from workflows.figures.drawing import AttentionFigures
from workflows.tracking.addresses import default_uri
from workflows.tracking.tracker import Tracker

FILES = {
    *(f"figure{number}.{kind}" for number in (3, 4, 5) for kind in ("svg", "png")),
    *("attention.html", "figures.json", "heads.json", "heads.csv", "relations.json"),
    "manifest.json",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one model."""
    store = LocalStore(tmp_path_factory.mktemp("attention_figures") / "runs")
    store.artifacts.mkdir(parents=True)
    publish_model(store)
    return store.root


def drawn_in(runs: Path) -> list[AttentionFigures]:
    return [AttentionFigures(folder) for folder in sorted((runs / "store").glob("attention_figures-*"))]


@pytest.mark.usefixtures("ray_cluster")
def test_figures_are_drawn_once_and_sent_to_the_model_s_run(runs: Path, command_line: CommandLine) -> None:
    """All files, captions that say what was chosen and why; a second run draws nothing; MLflow has them too.

    Another word draws anew, but examines no head again.
    """
    tracker = Tracker(default_uri(runs), "table2", runs)
    tracker.workflow("w", "table2", {})
    run = tracker.model("traitraitraitrai", "en-de base", {})
    tracker.end()
    told = command_line.here("workflows.attention_figures", "--store", str(runs))
    assert told.returncode == 0, told.stderr
    assert "MLflow: under attention/ in 1 of the model's runs" in told.stdout
    (figures,) = drawn_in(runs)
    assert {path.name for path in figures.folder.iterdir()} == FILES
    content = figures.load()
    assert [one.number for one in content.figures] == [3, 4, 5]
    assert [len(one.heads) for one in content.figures] == [2, 2, 2]
    assert content.figures[2].word is None
    for one in content.figures:
        assert one.caption.startswith(f"Figure {one.number}: ")
        assert one.caption.split(".")[0] in re.sub(r"\s+", " ", told.stdout)
        assert one.translation == content.translations[one.sentence]
        assert (figures.folder / f"figure{one.number}.png").read_bytes().startswith(b"\x89PNG")
        svg = (figures.folder / f"figure{one.number}.svg").read_text(encoding="utf-8")
        assert ">⟨end⟩</text>" in svg
    page = (figures.folder / "attention.html").read_text(encoding="utf-8")
    reader = Reader(page)
    assert "pronoun to antecedent" in reader.text
    assert "encoder 1.2" in reader.text
    from mlflow.tracking import MlflowClient

    sent = MlflowClient(default_uri(runs)).list_artifacts(run, "attention")
    assert {Path(file.path).name for file in sent} == FILES

    again = command_line.here("workflows.attention_figures", "--store", str(runs))
    assert again.returncode == 0
    assert drawn_in(runs) == [figures]
    sentence = "The lamp is old, but the man likes it."
    options = ["--store", str(runs), "--sentence", sentence, "--word", "likes", "--heads", "2", "--layer", "1"]
    other = command_line.here("workflows.attention_figures", *options)
    assert other.returncode == 0, other.stderr
    (chosen,) = (one.load() for one in drawn_in(runs) if one != figures)
    assert [(one.layer, one.heads, one.word) for one in chosen.figures] == [
        (1, (2,), "likes"),
        (1, (2,), "likes"),
        (1, (2,), None),
    ]
    assert len(list((runs / "store").glob("heads-*"))) == len(list((runs / "store").glob("relations-*"))) == 1


def test_what_cannot_be_drawn_is_one_line(runs: Path, tmp_path: Path, command_line: CommandLine) -> None:
    """Options that contradict each other or name what is not there; before anything starts."""
    for options, told in [
        (["--run", "a", "--model", str(tmp_path)], "give one of them"),
        (["--run", "a"], "has models of en-de base"),
        (["--model", str(tmp_path)], "holds no model.safetensors"),
        (["--heads", "1;2"], "write numbers with commas"),
    ]:
        refused = command_line.here("workflows.attention_figures", "--store", str(runs), *options)
        assert refused.returncode == 2
        assert told in refused.stderr
        assert refused.stderr.count("\n") == 1
    refused = command_line.here("workflows.cli", "figures", "--port", "0", "--store", str(runs))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_the_command_line_serves_until_ctrl_c(runs: Path, tmp_path: Path) -> None:
    """`aiayn figures --out --serve` writes the folder, serves the page, translates, and ends with status 0."""
    out = tmp_path / "figures"
    command = [sys.executable, "-m", "workflows.cli", "figures", "--store", str(runs), "--out", str(out)]
    with subprocess.Popen(
        [*command, "--serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            port = 0
            for line in process.stdout:
                if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                    port = int(found[1])
                    break
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/")
            page = connection.getresponse().read().decode()
            body = json.dumps({"sentence": "Anna sings."})
            connection.request("POST", "/attend", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            connection.close()
        finally:
            process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, "stopped serving" in rest, "Traceback" in errors) == (0, True, False)
    assert 'id="form"' in page
    assert answer["sentence"] == "Anna sings."
    assert {path.name for path in out.iterdir()} == FILES
    assert 'id="form"' not in (out / "attention.html").read_text(encoding="utf-8")
