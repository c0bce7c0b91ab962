"""Perplexity of a model on a split: exp of the plain negative log-likelihood per token, never of the smoothed loss.

measure(Context(folder), checkpoint, dataset).read_json("perplexity.json")
"""

from dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.evaluation.translation import load_model
from pipeline.store.artifact import Artifact, Context
from pipeline.store.artifacts import Checkpoint, EncodedDataset
from pipeline.text.encoding import EncodedSplit
from pipeline.training.validation import check_vocabulary, exp, split_sums


@dataclass(frozen=True)
class Perplexity(Artifact):
    """`perplexity.json`: {"dev_nll", "dev_perplexity", "tokens"}; nats per target token, END_ID counted."""

    figures_file = "perplexity.json"


def measure(context: Context, checkpoint: Checkpoint, dataset: EncodedDataset) -> Perplexity:
    """Perplexity of a checkpoint on the dev split.

    Raises UserError where the dev split is empty, or checkpoint and dataset have different vocabularies.
    """
    model = load_model(checkpoint.folder)
    check_vocabulary(dataset, model.config.vocabulary_size)
    split = EncodedSplit.open(dataset, "dev")
    _, nll, n_tokens = split_sums(model, split, smoothing=0.0).tolist()
    if not n_tokens:
        raise UserError(f"{dataset.folder} has an empty dev split; its perplexity is not defined")
    perplexity = Perplexity(context.folder)
    figures = {"dev_nll": nll / n_tokens, "dev_perplexity": exp(nll / n_tokens), "tokens": int(n_tokens)}
    perplexity.write_json("perplexity.json", figures)
    return perplexity
