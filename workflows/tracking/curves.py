"""Tells MLflow of a workflow while it runs and when it is done (workflows.tracking.tracker does the writing)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import TrainingRun
from workflows.engine.dag import Step
from workflows.engine.events import Watcher
from workflows.reports.corpus import CorpusReport
from workflows.reports.corpus_text import metrics
from workflows.tables.measurements import Measured, read_metrics
from workflows.tracking.tracker import Tracker


@dataclass(frozen=True)
class TrackedModel:
    """A child run: a training and what is to be told of it."""

    name: str
    training: Step
    params: Mapping[str, Any]
    tags: Mapping[str, str]


class CurveWatcher(Watcher):
    """Sends the metrics of trainings as they come."""

    def __init__(self, tracker: Tracker, models: list[TrackedModel]) -> None:
        self._tracker = tracker
        self._fingerprints = {model.training.fingerprint for model in models}

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Metrics of a training."""
        if "metrics" in event and step.fingerprint in self._fingerprints:
            self._tracker.metrics(step.fingerprint, event["metrics"], event["step"])

    def finished(self, step: Step[Artifact], artifact: Artifact) -> None:
        """The whole curve, should an event have been lost."""
        if step.fingerprint in self._fingerprints:
            send_curves(self._tracker, step.fingerprint, TrainingRun(artifact.folder))


def send_curves(tracker: Tracker, fingerprint: str, run: TrainingRun) -> None:
    """What MLflow has not yet of a finished training's metrics."""
    manifest = run.manifest
    ended = datetime.fromisoformat(manifest["started"]).timestamp() + manifest["seconds"]
    tracker.curves(fingerprint, read_metrics(run), ended)


def send_results(tracker: Tracker, fingerprint: str, measured: Measured) -> None:
    """Scores, perplexity, costs and sample translations of one model."""
    values = {
        f"{score}.{test_set}": scores[score]
        for test_set, scores in measured.scores.items()
        for score in ("paper_bleu", "sacrebleu")
    }
    values |= {f"final_{name}": value for name, value in measured.perplexity.items() if name != "tokens"}
    values |= {name: measured.cost[name] for name in ("paper_way_flop", "counted_flop", "train_s")}
    values["parameters"] = measured.run["parameters"]
    tracker.results(fingerprint, values)
    samples = "\n\n".join(
        f"source:     {sample.source}\nreference:  {sample.reference}\nhypothesis: {sample.hypothesis}"
        for sample in measured.samples
    )
    tracker.text(fingerprint, samples + "\n", "samples.txt")


def send_corpus_report(tracker: Tracker, report: CorpusReport, fingerprint: str) -> None:
    """The main figures of a language pair's text and the files of its report, on the workflow's run."""
    statistics = report.load()
    tracker.results("", metrics(statistics))
    tracker.artifacts(report.folder, fingerprint, into=f"corpus-{statistics.pair}")


@contextmanager
def tracked(
    tracker: Tracker, workflow: Step[Artifact], name: str, params: Mapping[str, Any], models: list[TrackedModel]
) -> Iterator[CurveWatcher]:
    """The parent run of `workflow` with a child run for each model, open during the body, closed with its outcome."""
    tracker.workflow(workflow.fingerprint, name, params)
    for model in models:
        tracker.model(model.training.fingerprint, model.name, model.params, model.tags)
    try:
        yield CurveWatcher(tracker, models)
    except KeyboardInterrupt:
        tracker.end("KILLED")
        raise
    except BaseException:
        tracker.end("FAILED")
        raise
    tracker.end()
