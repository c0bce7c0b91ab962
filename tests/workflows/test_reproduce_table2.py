import json
import shlex
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow.entities import Run

from pipeline.errors import UserError
from pipeline.store.store import Store
from tests.support.reproduced import Tracked, artifacts, written
from tests.support.slow_libraries import SLOW
from tests.support.tiny_profile import TABLE_2, MadeTable2, command_of_table2, overrides, run_in_process
from workflows import reproduce_table2
from workflows.cli.reproduce import reproduce
from workflows.engine import dag
from workflows.names import named_folder
from workflows.runs import runs_in


def _tracked(made: MadeTable2) -> tuple[Tracked, Run, Run]:
    """MLflow's runs: the newest of the table, and the newest of its model."""
    tracked = Tracked(made.store, "table2")
    return tracked, tracked.named("table2 embedded")[0], tracked.named("en-de base")[0]


def _again(made: MadeTable2, *changes: str, **more: Any) -> None:
    settings = [*overrides(TABLE_2), *changes]
    reproduce(*reproduce_table2.main(overrides=settings, pairs="en-de", models="base", store=made.store, **more))


def test_the_table_holds_what_the_stages_measured(made_table2: MadeTable2) -> None:
    made, store = made_table2, made_table2.store / "store"
    manifests = [json.loads(path.read_text()) for path in store.glob("scoring-*/manifest.json")]
    assert len(manifests) == 2  # the model's and word-by-word substitution's
    (of_model,) = [each["fingerprint"] for each in manifests if "words" not in each["label"]]
    scored = json.loads((store / f"scoring-{of_model}" / "scores.json").read_text())
    assert made.base["sacrebleu.en-de"] == scored["sacrebleu"]
    assert (made.base["paper_way_flop.en-de"] == "not measured") is not torch.cuda.is_available()
    assert made.base["counted_flop.en-de"] > 0
    assert "paper_bleu.en-fr" not in made.base


@pytest.mark.parametrize("wrong", ["MLflow", "Ray", "Ray --until"])
def test_vain_force_sets_nothing_aside(wrong: str, copy_of_table2: MadeTable2, monkeypatch: pytest.MonkeyPatch) -> None:
    record = copy_of_table2.folder / "1" / "run.json"
    before = artifacts(copy_of_table2.store), record.read_bytes()
    if wrong == "MLflow":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "htp://nowhere")
        with pytest.raises(UserError, match="does not answer"):
            _again(copy_of_table2, force="train")
    else:
        until = ["--until", "score"] if "--until" in wrong else []
        command = [*command_of_table2(copy_of_table2.store), "--force", "train", "--address", "127.0.0.1:1", *until]
        done = run_in_process(*command)
        assert (done.returncode, "no Ray cluster answers" in done.stderr) == (2, True)
    assert (artifacts(copy_of_table2.store), record.read_bytes()) == before


def test_until_keeps_a_finished_record_and_force_runs_stages_again(copy_of_table2: MadeTable2) -> None:
    record = copy_of_table2.folder / "1" / "run.json"
    before = record.read_bytes()
    _again(copy_of_table2, until="encoding")
    assert record.read_bytes() == before
    shutil.rmtree(copy_of_table2.store / "table2")
    _again(copy_of_table2, until="encoding")
    assert json.loads(record.read_text())["settings"]["name"] == "embedded"
    made = {path: path.stat().st_mtime_ns for path in copy_of_table2.store.glob("store/scoring-*/manifest.json")}
    _again(copy_of_table2, force="score")
    assert all(path.stat().st_mtime_ns > before_ns for path, before_ns in made.items())


def test_the_output_leads_to_report_model_and_curves(made_table2: MadeTable2) -> None:
    """The first line has the settings, the last one the result; a printed command translates with the model."""
    output = made_table2.output
    assert output.startswith("settings of profile embedded: generated text; changed by --set ")
    assert "Differences from the paper\n" not in output
    assert written(output) == (made_table2.folder, made_table2.table)
    report = (made_table2.folder / "report.html").read_text()
    assert "data:image/" in report
    said = output.rstrip().rpartition("\n")[2]
    assert made_table2.table["said"] == said
    assert f"{made_table2.base['paper_bleu.en-de']:.1f}" in said
    assert "EN-DE, generated text: lengths" in report
    (translate,) = [shlex.split(line)[1:] for line in output.splitlines() if line.startswith("translate: ")]
    assert named_folder("average", Path(translate[-1]), "model.safetensors").parent == made_table2.store / "store"
    assert output.count(f" curves {made_table2.folder}\n") == 2  # while it runs, and at the end


def test_real_text_ends_with_translations(
    copy_of_table2: MadeTable2, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("workflows.cli.reproduce.GENERATED", "other text")
    _again(copy_of_table2, verbose=True)
    output = capsys.readouterr().out
    assert (output.count("\ntranslation: "), "Differences from the paper\n" in output) == (3, True)


def test_mlflow_has_a_run_of_the_table_and_one_of_the_model(made_table2: MadeTable2) -> None:
    tracked, parent, child = _tracked(made_table2)
    runs = tracked.runs()
    assert {run.info.run_id for run in runs} == {parent.info.run_id, child.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    points = tracked.client.get_metric_history(child.info.run_id, "dev_perplexity")
    # Sorted: MLflow orders points by time, and those sent during training have the time of reading.
    assert sorted(point.step for point in points) == [5, 10]
    assert {"tokens_s", "learning_rate", "gradient_norm", "sacrebleu.test"} <= child.data.metrics.keys()
    assert child.data.params["training.model.d_model"] == "32"
    assert child.data.params["cleaning.max_words"] == parent.data.params["cleaning.max_words"] == "250"
    assert parent.data.params["overrides"] == " ".join(f"--set {setting}" for setting in overrides(TABLE_2))
    (segment,) = json.loads(next((made_table2.store / "store").glob("training-*/run.json")).read_text())["segments"]
    assert child.data.tags["used.dtype"] == segment["dtype"]
    assert child.data.tags["used.device_name"] == segment["devices"][0]["name"]
    for run in (parent, child):
        assert import_module(run.data.tags["mlflow.source.name"]) is reproduce_table2
    assert child.info.end_time < parent.info.end_time
    (prepared,) = (made_table2.store / "store").glob("corpus_report-*/corpus_report.json")
    plan = json.loads(prepared.read_text())["plan"]
    assert parent.data.metrics["padding_fraction.en-de"] == plan["padding_fraction"] > 0
    sent = {file.path for file in tracked.client.list_artifacts(parent.info.run_id, "corpus-en-de")}
    assert {"corpus-en-de/corpus_report.json", "corpus-en-de/corpus_report.svg"} <= sent
    (listed,) = runs_in(Store(made_table2.store))
    assert (listed.name, listed.status) == ("table2/embedded/1", "finished")
    for metrics in (listed.record.metrics, parent.data.metrics):
        assert metrics["paper_bleu.EN-DE base"] == made_table2.base["paper_bleu.en-de"]


def test_the_same_command_again_imports_little_and_makes_nothing(copy_of_table2: MadeTable2) -> None:
    _again(copy_of_table2)  # the copy's first command corrects the locations in MLflow's file
    before, made = copy_of_table2.stages(), copy_of_table2
    done = run_in_process(*command_of_table2(made.store, flags=["-X", "importtime"]))
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"report: {made.store}/table2/embedded/report.html" in done.stdout
    assert {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()} & SLOW == set()
    assert made.stages() == before
    assert len(Tracked(made.store, "table2").runs()) == 2


def test_an_edit_of_the_source_rebuilds_the_table(copy_of_table2: MadeTable2, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run has a child of its own; the earlier table keeps the other."""
    (tracked, parent, child), before = _tracked(copy_of_table2), copy_of_table2.stages()
    monkeypatch.setattr(dag, "source_sha256", lambda: "that of an edited file")
    _again(copy_of_table2)
    assert [kind for kind, n in copy_of_table2.stages().items() if n != before[kind]] == ["tabulating"]
    edition = tracked.named("table2 embedded")[0]
    assert edition.info.run_id != parent.info.run_id
    assert edition.data.metrics == parent.data.metrics
    added, kept = tracked.named("en-de base")
    assert kept.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert added.data.tags["mlflow.parentRunId"] == edition.info.run_id
    assert added.data.metrics == child.data.metrics


def test_another_beam_trains_nothing(copy_of_table2: MadeTable2) -> None:
    tracked, before = Tracked(copy_of_table2.store, "table2"), copy_of_table2.stages()
    _again(copy_of_table2, "decoding.beam_size=1", dev_bleu=True)
    after = copy_of_table2.stages()
    changed = {kind for kind in after if after[kind] != before.get(kind)}
    assert changed == {"decoding", "scoring", "dev_scores", "tabulating"}
    children = {run.data.params["decoding.beam_size"]: run for run in tracked.named("en-de base")}
    assert children.keys() == {"4", "1"}
    assert {run.info.status for run in children.values()} == {"FINISHED"}
    points = tracked.client.get_metric_history(children["1"].info.run_id, "dev_sacrebleu")
    (measured,) = (copy_of_table2.store / "store").glob("dev_scores-*/dev_scores.json")
    series = json.loads(measured.read_text())["series"]["dev_sacrebleu"]
    assert {point.step: point.value for point in points} == {int(update): score for update, score in series.items()}
    assert sorted(point.step for point in points) == [2, 4, 6, 8, 10]


def test_a_search_is_chosen_on_the_dev_set(copy_of_table2: MadeTable2, capsys: pytest.CaptureFixture[str]) -> None:
    before = copy_of_table2.stages()
    grid = ["choice.beam_sizes=[1]", "choice.length_penalties=[2]", "decoding.beam_size=2"]
    _again(copy_of_table2, *grid, choose_decoding=True)
    output = capsys.readouterr().out
    assert copy_of_table2.stages()["training"] == before["training"] == 1
    *_, choice = copy_of_table2.table["tables"]
    scores = {row["values"]["beam"]: row["values"] for row in choice["rows"]}
    alphas = {1: "α 2", 2: "α 0.6"}
    assert {beam: alphas[beam] in values for beam, values in scores.items()} == {1: True, 2: True}
    (beam,) = [beam for beam, values in scores.items() if "chosen" in values]
    assert scores[beam][alphas[beam]] == max(values[alphas[beam]] for beam, values in scores.items())
    assert "Chosen on the dev set: beam and α" in output
    assert f"beam {beam}" in {each["what"]: each["here"] for each in copy_of_table2.table["differences"]}["decoding"]
    _, _, child = _tracked(copy_of_table2)
    assert child.data.tags["used.beam_size"] == str(beam)
