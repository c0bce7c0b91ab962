"""Reports a workflow to MLflow while it runs and when it is done; workflows.tracking.tracker does the writing."""

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
    """A child run: a training, with the parameters and tags to report."""

    name: str
    training: Step
    params: Mapping[str, Any]
    tags: Mapping[str, str]


class CurveWatcher(Watcher):
    """Sends the metrics of trainings as they arrive."""

    def __init__(self, tracker: Tracker, models: list[TrackedModel]) -> None:
        self._tracker = tracker
        self._fingerprints = {model.training.fingerprint for model in models}

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Sends the metrics of a training."""
        if "metrics" in event and step.fingerprint in self._fingerprints:
            self._tracker.metrics(step.fingerprint, event["metrics"], event["step"])

    def finished(self, step: Step[Artifact], artifact: Artifact) -> None:
        """Sends the whole curve of a finished training, in case an event was lost."""
        if step.fingerprint in self._fingerprints:
            send_curves(self._tracker, step.fingerprint, TrainingRun(artifact.folder))


def send_curves(tracker: Tracker, fingerprint: str, run: TrainingRun) -> None:
    """Sends those metrics of a finished training that MLflow does not have yet."""
    manifest = run.manifest
    ended = datetime.fromisoformat(manifest["started"]).timestamp() + manifest["seconds"]
    tracker.curves(fingerprint, read_metrics(run), ended)


def send_results(tracker: Tracker, fingerprint: str, measured: Measured) -> None:
    """Sends the scores, perplexity, costs and sample translations of one model."""
    perplexity, cost = measured.perplexity, measured.cost
    values = {
        "final_dev_nll": perplexity.dev_nll,
        "final_dev_perplexity": perplexity.dev_perplexity,
        "paper_way_flop": cost.paper_way_flop,
        "counted_flop": cost.counted_flop,
        "train_s": cost.train_s,
        "parameters": measured.run.parameters,
    }
    for test_set, scores in measured.scores.items():
        values |= {f"paper_bleu.{test_set}": scores.paper_bleu, f"sacrebleu.{test_set}": scores.sacrebleu}
    tracker.results(fingerprint, values)
    samples = "\n\n".join(
        f"source:     {sample.source}\nreference:  {sample.reference}\nhypothesis: {sample.hypothesis}"
        for sample in measured.samples
    )
    tracker.text(fingerprint, samples + "\n", "samples.txt")


def send_corpus_report(tracker: Tracker, report: CorpusReport, fingerprint: str) -> None:
    """Sends the main figures of a language pair's text, and the files of its report, to the workflow's run."""
    statistics = report.load()
    tracker.results("", metrics(statistics))
    tracker.artifacts(report.folder, fingerprint, into=f"corpus-{statistics.pair}")


@contextmanager
def tracked(
    tracker: Tracker, workflow: Step[Artifact], name: str, params: Mapping[str, Any], models: list[TrackedModel]
) -> Iterator[CurveWatcher]:
    """Opens the parent run of `workflow` with a child run for each model; closes them with the outcome of the body."""
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
