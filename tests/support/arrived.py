"""Says whether MLflow has, once, what a store has of a training of Table 2."""

import json
from pathlib import Path

from mlflow.artifacts import download_artifacts
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from pipeline.store.artifacts import TrainingRun
from pipeline.text.lines import read_lines
from workflows.tracking.models import TRANSLATOR_TAG
from workflows.tracking.tracker import TRAINING_TAG


def runs_of(client: MlflowClient) -> list[Run]:
    """All runs of the experiment `table2`."""
    experiment = client.get_experiment_by_name("table2")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def assert_arrived(client: MlflowClient, store: Path, training: TrainingRun, target: Path) -> None:
    """Asserts that curves, settings, scores, table, samples and model are there; files are copied to `target`."""
    fingerprint = training.manifest["fingerprint"]
    (child,) = [run for run in runs_of(client) if run.data.tags.get(TRAINING_TAG) == fingerprint]
    parent = client.get_run(child.data.tags["mlflow.parentRunId"])
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")

    expected: dict[str, dict[int, float]] = {}
    for line in map(json.loads, read_lines(training.folder / "metrics.jsonl")):
        for name, value in line.items():
            if name not in ("update", "train_s") and isinstance(value, int | float):  # there is a final one, too
                expected.setdefault(name, {})[line["update"]] = float(value)
    assert {"loss", "dev_perplexity", "tokens_s"} <= expected.keys()
    for name, points in expected.items():
        arrived = client.get_metric_history(child.info.run_id, name)
        assert sorted((point.step, point.value) for point in arrived) == sorted(points.items()), name
    assert {"sacrebleu.test", "paper_bleu.test", "final_dev_perplexity"} <= child.data.metrics.keys()
    assert "paper BLEU EN-DE base" in parent.data.metrics
    assert child.data.params["training.seed"] == str(training.load().settings.seed)
    assert {"averaging.last", "decoding.beam_size"} <= child.data.params.keys()
    assert "| Transformer (base), measured |" in parent.data.tags["mlflow.note.content"]

    target.mkdir(parents=True)
    sent = Path(client.download_artifacts(parent.info.run_id, "", str(target)))
    tables = [folder for folder in store.glob("store/tabulating-*") if _same(folder / "table2.md", sent / "table2.md")]
    assert [table for table in tables if _same(table / "report.html", sent / "report.html")]
    samples = Path(client.download_artifacts(child.info.run_id, "samples.txt", str(target)))
    assert samples.read_text().strip()

    (output,) = child.outputs.model_outputs
    kept = client.get_logged_model(output.model_id)
    checkpoint = store / "store" / f"averaging-{kept.tags[TRANSLATOR_TAG]}"
    assert str(kept.status) == "READY"
    model = download_artifacts(kept.artifact_location, dst_path=str(target / "model"), tracking_uri=client.tracking_uri)
    (weights,) = Path(model).rglob("model.safetensors")
    assert _same(weights, checkpoint / "model.safetensors")


def _same(path: Path, other: Path) -> bool:
    return path.read_bytes() == other.read_bytes()
