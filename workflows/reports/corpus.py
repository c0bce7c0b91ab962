"""The report of prepared text (§5.1): what was kept of it, how long its sentences are, how much of a batch is padding.

A stage: `aiayn prepare` makes it in OUT/report; Tables 2 and 3 show it and send it to MLflow.
"""

from pydantic import TypeAdapter

from pipeline.settings import PlanSettings
from pipeline.store.artifact import Artifact, Context
from pipeline.store.artifacts import Corpus, EncodedDataset, Vocabulary
from pipeline.text.corpus_statistics import CorpusStatistics, measure
from workflows.reports import corpus_text


class CorpusReport(Artifact):
    """`corpus_report.json` and its drawings, `corpus_report.svg`."""

    figures_file = "corpus_report.json"

    def load(self) -> CorpusStatistics:
        """What `corpus_report.json` holds."""
        return TypeAdapter(CorpusStatistics).validate_python(self.read_json("corpus_report.json"))

    @property
    def summary(self) -> str:
        """The main figures."""
        return corpus_text.summary(self.load())


def report_corpus(
    context: Context,
    corpus: Corpus,
    vocabulary: Vocabulary,
    dataset: EncodedDataset,
    data: str,
    *plan: int,
) -> CorpusReport:
    """Stage: the figures of a language pair's text, `data` in a few words, and of a training's first epoch on it.

    `plan` is the fields of PlanSettings, one by one. Raises UserError where a file is missing or damaged.
    """
    from workflows.reports.corpus_plot import plots
    from workflows.reports.svg import standalone  # matplotlib takes a while, and who only builds the DAG needs it not

    statistics = measure(data, corpus, vocabulary, dataset, PlanSettings(*plan))
    report = CorpusReport(context.folder)
    report.write_json("corpus_report.json", TypeAdapter(CorpusStatistics).dump_python(statistics, mode="json"))
    (context.folder / "corpus_report.svg").write_text(standalone(plots(statistics)), encoding="utf-8")
    return report
