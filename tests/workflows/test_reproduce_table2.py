"""Table 2 end to end, on little generated text: the real stages, Ray and MLflow."""

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest
import torch
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from pipeline.store.store import Store
from tests.support.slow_libraries import SLOW
from workflows import reproduce_table2
from workflows.cli.runs import runs_in
from workflows.engine import dag
from workflows.names import named_folder
from workflows.profiles.loading import load_profile
from workflows.tracking.addresses import default_uri
from workflows.tracking.models import MODEL_TAG

TINY = [
    "corpora.en-de.train_pairs=600",
    "corpora.en-de.dev_pairs=20",
    "corpora.en-de.test_pairs=24",
    "vocabulary.size=300",
    "recipes.base.training.updates=10",
    "recipes.base.training.checkpoint_updates=2",
    "recipes.base.training.validation_updates=5",
    "recipes.base.training.model.d_model=32",
    "recipes.base.training.model.n_layers=1",
]


def _stages(store: Path) -> dict[str, int]:
    """Folders of each kind in the store."""
    kinds = [folder.name.rpartition("-")[0] for folder in (store / "store").iterdir()]
    return {kind: kinds.count(kind) for kind in kinds}


@pytest.mark.usefixtures("ray_cluster")
def test_one_cell_then_again_then_another_beam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table holds the cell's measured scores; a second call runs nothing; another beam trains nothing anew.

    With the other beam, the dev set is scored over time as well. Then a search is chosen on the dev set.
    """
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    arguments = {"pairs": "en-de", "models": "base", "store": tmp_path}
    reproduce_table2.main(overrides=TINY, **arguments)
    output = capsys.readouterr().out
    assert output.startswith("settings of profile embedded: generated text; changed by --set ")
    report = Path(output.split("report: ")[1].split("\n")[0])
    assert report == tmp_path / "table2" / "embedded" / "report.html"
    (translate,) = [shlex.split(line)[1:] for line in output.splitlines() if line.startswith("translate: ")]
    model = named_folder("average", Path(translate[-1]), "model.safetensors")
    assert model.parent == tmp_path / "store"
    assert "mlflow ui --backend-store-uri sqlite:///" in output
    assert "data:image/" in report.read_text()
    table = json.loads((report.parent / "table2.json").read_text())
    (base,) = [
        row for row in table["tables"][0]["rows"] if row["name"] == "Transformer (base)" and row["origin"] == "measured"
    ]
    (scored,) = [
        json.loads(path.read_text())
        for path in (tmp_path / "store").glob("scoring-*/scores.json")
        if path.parent.name in _scoring_of_models(tmp_path)
    ]
    assert base["values"]["en-de.sacrebleu"] == scored["sacrebleu"]
    assert (base["values"]["en-de.paper_way_flop"] == "not measured") is not torch.cuda.is_available()
    assert base["values"]["en-de.counted_flop"] > 0
    assert base["values"]["en-fr.paper_bleu"] == "not run"
    assert _stages(tmp_path)["scoring"] == 2  # the model's and that of word-by-word substitution

    client = MlflowClient(default_uri(tmp_path))
    (experiment,) = [experiment for experiment in client.search_experiments() if experiment.name == "table2"]
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["en-de base", "table2 embedded"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    (child,) = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    # Sorted: MLflow orders points by time, and what is sent while the training runs is dated by when it was read.
    assert sorted(point.step for point in client.get_metric_history(child.info.run_id, "dev_perplexity")) == [5, 10]
    assert {"tokens_s", "learning_rate", "gradient_norm", "sacrebleu.test"} <= child.data.metrics.keys()
    (parent,) = [run for run in runs if run is not child]
    (prepared,) = (tmp_path / "store").glob("corpus_report-*/corpus_report.json")
    plan = json.loads(prepared.read_text())["plan"]
    assert parent.data.metrics["padding_fraction.en-de"] == plan["padding_fraction"] > 0
    sent = {file.path for file in client.list_artifacts(parent.info.run_id, "corpus-en-de")}
    assert {"corpus-en-de/corpus_report.json", "corpus-en-de/corpus_report.svg"} <= sent
    assert "EN-DE, generated text: lengths" in report.read_text()
    (translator,) = client.search_logged_models([experiment.experiment_id])
    assert (translator.source_run_id, translator.name) == (child.info.run_id, "en-de base")
    for alias in ("newest", "embedded"):
        version = client.get_model_version_by_alias("aiayn-en-de-base", alias)
        assert (version.tags[MODEL_TAG], version.run_id) == (translator.model_id, child.info.run_id)

    (run,) = runs_in(Store(tmp_path))
    assert (run.name, run.folder) == ("table2/embedded/1", (report.parent / "table2.json").resolve().parent)
    assert run.figures["paper BLEU EN-DE base"] == base["values"]["en-de.paper_bleu"]
    assert parent.data.metrics["paper BLEU EN-DE base"] == run.figures["paper BLEU EN-DE base"]

    assert child.data.params["training.model.d_model"] == "32"
    assert child.data.params["cleaning.max_words"] == parent.data.params["cleaning.max_words"] == "250"
    assert parent.data.params["overrides"] == " ".join(f"--set {setting}" for setting in TINY)
    figures = json.loads(next((tmp_path / "store").glob("training-*/run.json")).read_text())
    (segment,) = figures["segments"]
    assert child.data.tags["used.dtype"] == segment["dtype"]
    assert child.data.tags["used.device_name"] == segment["devices"][0]["name"]
    for run in (parent, child):
        assert import_module(run.data.tags["mlflow.source.name"]) is reproduce_table2
    assert child.info.end_time < parent.info.end_time  # the table is made last

    before = _stages(tmp_path)
    assert _imports_of_another_run(tmp_path) & SLOW == set()
    assert _stages(tmp_path) == before
    assert len(client.search_runs([experiment.experiment_id])) == 2

    # An edit of any source file: a new table, and nothing of the model is sent again.
    n_sent, sent_files = _metrics_sent(tmp_path), _files_of(tmp_path, child)
    with monkeypatch.context() as edited:
        edited.setattr(dag, "source_sha256", lambda: "that of an edited file")
        reproduce_table2.main(overrides=TINY, **arguments)
    assert [kind for kind, n in _stages(tmp_path).items() if n != before[kind]] == ["tabulating"]
    before = _stages(tmp_path)
    tables = client.search_runs([experiment.experiment_id], "run_name = 'table2 embedded'")
    (edition,) = [run for run in tables if run.info.run_id != parent.info.run_id]
    assert edition.data.metrics == parent.data.metrics
    assert _metrics_sent(tmp_path) == n_sent + len(edition.data.metrics)
    assert _files_of(tmp_path, child) == sent_files
    (moved,) = client.search_runs([experiment.experiment_id], "run_name = 'en-de base'")
    assert (moved.info.run_id, moved.data.tags["mlflow.parentRunId"]) == (child.info.run_id, edition.info.run_id)

    client.delete_run(child.info.run_id)
    reproduce_table2.main(overrides=TINY, **arguments)
    assert _stages(tmp_path) == before
    (sent_again,) = client.search_runs([experiment.experiment_id], "run_name = 'en-de base'")
    assert sent_again.info.run_id != child.info.run_id
    assert sent_again.data.metrics == child.data.metrics

    reproduce_table2.main(overrides=[*TINY, "decoding.beam_size=1"], dev_bleu=True, **arguments)
    after = _stages(tmp_path)
    changed = {kind for kind in after if after[kind] != before.get(kind)}
    assert changed == {"decoding", "scoring", "dev_scores", "tabulating"}
    assert len(client.search_logged_models([experiment.experiment_id])) == 1  # the same weights
    children = client.search_runs([experiment.experiment_id], "run_name = 'en-de base'")
    assert {run.data.params["decoding.beam_size"] for run in children} == {"4", "1"}
    (greedy,) = [run for run in children if run.data.params["decoding.beam_size"] == "1"]
    points = client.get_metric_history(greedy.info.run_id, "dev_sacrebleu")
    (measured,) = (tmp_path / "store").glob("dev_scores-*/dev_scores.json")
    series = json.loads(measured.read_text())["series"]["dev_sacrebleu"]
    scored = {int(update): score for update, score in series.items()}
    assert {point.step: point.value for point in points} == scored
    assert sorted(scored) == [2, 4, 6, 8, 10]
    assert {run.info.status for run in children} == {"FINISHED"}

    grid = ["choice.beam_sizes=[1]", "choice.length_penalties=[2]"]
    reproduce_table2.main(overrides=[*TINY, *grid, "decoding.beam_size=2"], choose_decoding=True, **arguments)
    output = capsys.readouterr().out
    assert _stages(tmp_path)["training"] == after["training"] == 1
    _, choice = json.loads((report.parent / "table2.json").read_text())["tables"]
    scores = {row["values"]["beam"]: row["values"] for row in choice["rows"]}
    alphas = {1: "α 2", 2: "α 0.6"}
    assert {beam: alphas[beam] in values for beam, values in scores.items()} == {1: True, 2: True}
    (beam,) = [beam for beam, values in scores.items() if "chosen" in values]
    assert scores[beam][alphas[beam]] == max(values[alphas[beam]] for beam, values in scores.items())
    assert "Chosen on the dev set: beam and α" in output
    assert re.search(rf"decoding .*beam 4.* beam {beam}", output)  # what differs from the paper
    children = client.search_runs([experiment.experiment_id], "run_name = 'en-de base'", order_by=["start_time DESC"])
    assert children[0].data.tags["used.beam_size"] == str(beam)


def _metrics_sent(store: Path) -> int:
    """The points of all curves and results in MLflow's database."""
    with closing(sqlite3.connect(store / "mlflow.db")) as database:
        (n_points,) = database.execute("select count(*) from metrics").fetchone()
    return int(n_points)


def _files_of(store: Path, run: Run) -> dict[Path, int]:
    """The files that MLflow has of a run and of models, with the times at which they were written."""
    folders = (store / "mlartifacts" / run.info.run_id, store / "mlartifacts" / "models")
    found = {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert {path.name for path in found} >= {"samples.txt", "MLmodel"}
    return found


def _imports_of_another_run(store: Path) -> set[str]:
    """Runs the same cell by the command line, in a new process, and returns the names of the modules it imported."""
    overrides = [word for override in TINY for word in ("--set", override)]
    command = [sys.executable, "-X", "importtime", "-m", "workflows.reproduce_table2", *overrides]
    again = subprocess.run(
        [*command, "--pairs", "en-de", "--models", "base", "--store", str(store)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"report: {store}/table2/embedded/report.html" in again.stdout
    return {line.rpartition("|")[2].strip() for line in again.stderr.splitlines()}


def _scoring_of_models(store: Path) -> set[str]:
    """Scores whose translations came from a model, by their manifests."""
    manifests = [json.loads(path.read_text()) for path in (store / "store").glob("scoring-*/manifest.json")]
    return {f"scoring-{manifest['fingerprint']}" for manifest in manifests if "words" not in manifest["label"]}


def test_the_plan_lists_every_stage_and_runs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--plan names the stages of all four cells and makes no folder."""
    reproduce_table2.main(plan=True, verbose=True, choose_decoding=True, store=tmp_path / "new")
    output = capsys.readouterr().out
    for stage in (
        "generate en-fr",
        "report en-de",
        "train en-de big",
        "choose en-de big",
        "decode en-fr base",
        "table 2",
    ):
        assert stage in output
    assert output.count("to run") >= 33
    assert not (tmp_path / "new").exists()


def test_cells_of_a_pair_share_its_text_and_vocabulary() -> None:
    """Base and big of one pair are trained on one dataset: one fingerprint."""
    cells = reproduce_table2.cells_of(load_profile(), ["en-de"], ["base", "big"])
    base, big = (cell.training.inputs[0] for cell in cells)
    assert base.fingerprint == big.fingerprint
    assert cells[0].training.fingerprint != cells[1].training.fingerprint
