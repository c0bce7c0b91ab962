"""Measures a model's perplexity on the dev split: exp of the mean plain negative log-likelihood, not the smoothed loss.

measure(Context(folder), checkpoint, dataset).load().dev_perplexity
"""

from dataclasses import dataclass

from pipeline.errors import UserError
from pipeline.settings import LONGEST_TOKENS
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Checkpoint, EncodedDataset
from pipeline.store.figures import Figures


class PerplexityFigures(Figures):
    """`perplexity.json`: what was measured on the dev split."""

    dev_nll: float
    """Nats per target token, END_ID counted."""
    dev_perplexity: float
    tokens: int
    """Target tokens of the dev split, END_ID counted."""


@dataclass(frozen=True)
class Perplexity(JsonArtifact[PerplexityFigures]):
    """`perplexity.json`: the perplexity of a checkpoint."""

    figures_file = "perplexity.json"


def measure(context: Context, checkpoint: Checkpoint, dataset: EncodedDataset) -> Perplexity:
    """Writes the perplexity of a checkpoint on the dev split, computed in float32 on `context.device`.

    Raises UserError where no dev pair is short enough to be computed, or where checkpoint and dataset have different
    vocabularies.
    """
    from model.loss import perplexity_of
    from pipeline.evaluation.translation import load_model  # torch is slow to import, and the artifact does not need it
    from pipeline.text.encoding import EncodedSplit
    from pipeline.training.validation import split_sums

    model = load_model(checkpoint.folder, context.device)
    dataset.check_vocabulary(model.config.vocabulary_size)
    split = EncodedSplit.open(dataset, "dev")
    _, nll, n_tokens = split_sums(model, split, smoothing=0.0).tolist()
    if not n_tokens:
        raise UserError(f"{dataset.folder} has no dev pair of at most {LONGEST_TOKENS} tokens; add shorter dev text")
    nll_per_token = nll / n_tokens
    perplexity = Perplexity(context.folder)
    perplexity.write(
        PerplexityFigures(dev_nll=nll_per_token, dev_perplexity=perplexity_of(nll_per_token), tokens=int(n_tokens))
    )
    return perplexity
