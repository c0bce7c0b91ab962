"""Reports on prepared text (§5.1): the pairs kept, sentence lengths and padding.

`aiayn prepare` writes the report to OUT/report; Tables 2 to 4 show it and send it to MLflow.
"""

from collections.abc import Sequence

from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Corpus, EncodedDataset, Vocabulary
from pipeline.text.corpus_statistics import CorpusStatistics, measure
from workflows.reports import corpus_text


class CorpusReport(JsonArtifact[CorpusStatistics]):
    """`corpus_report.json`, and `corpus_report.svg` with a histogram of sentence lengths."""

    record_file = "corpus_report.json"

    @property
    def summary(self) -> str:
        """The main statistics on one line."""
        return corpus_text.summary(self.load())


def report_corpus(
    context: Context,
    corpus: Corpus,
    vocabulary: Vocabulary,
    dataset: EncodedDataset,
    data: str,
    plan: Sequence[int],
) -> CorpusReport:
    """Writes the statistics of a language pair's text and of the first epoch of a run on it.

    `data` is a short description of the text; `plan` is the run's token budget, micro-batches and seed.
    Raises UserError if a file is missing or damaged.
    """
    from workflows.reports.corpus_plot import lengths_svg  # Matplotlib is slow to import

    budget_tokens, micro_batches, seed = plan
    training = TrainingSettings(budget_tokens=budget_tokens, micro_batches=micro_batches, seed=seed)
    statistics = measure(data, corpus, vocabulary, dataset.on_this_node(context.scratch), training)
    report = CorpusReport(context.folder)
    report.write(statistics)
    (context.folder / "corpus_report.svg").write_text(lengths_svg(statistics), encoding="utf-8")
    return report
