"""Measures a model's perplexity on the dev set: exp of the mean plain negative log-likelihood, not the smoothed loss.

measure(Context(folder), checkpoint, dev).load().dev_perplexity
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Checkpoint, EvaluationSet
from pipeline.store.figures import Figures

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from model.transformer import Transformer
    from pipeline.text.encoding import EncodedSplit


class PerplexityFigures(Figures):
    """`perplexity.json`: what was measured on the dev set."""

    dev_nll: float
    """Nats per target token, END_ID counted."""
    dev_perplexity: float
    tokens: int
    """Target tokens of the dev set, END_ID counted."""


@dataclass(frozen=True)
class Perplexity(JsonArtifact[PerplexityFigures]):
    """`perplexity.json`: the perplexity of a checkpoint."""

    figures_file = "perplexity.json"


def measure(context: Context, checkpoint: Checkpoint, dev: EvaluationSet) -> Perplexity:
    """Writes the perplexity of a checkpoint on the dev set, computed in float32 on `context.device`.

    Raises UserError where no dev pair is short enough to be computed.
    """
    from pipeline.evaluation.translation import load_model  # torch is slow to import, and the artifact does not need it
    from pipeline.text.encoding import encoded_set

    perplexity = Perplexity(context.folder)
    with encoded_set(context, dev, checkpoint.vocabulary) as split:
        perplexity.write(of_pairs(load_model(checkpoint.folder, context.device), split))
    return perplexity


def of_pairs(
    model: "Transformer", split: "EncodedSplit", of_rows: "NDArray[np.int64] | None" = None
) -> PerplexityFigures:
    """Returns the perplexity on the pairs of a split, or of some rows, that are short enough; there has to be one."""
    from model.loss import perplexity_of
    from pipeline.training.validation import split_sums

    _, nll, n_tokens = split_sums(model, split, smoothing=0.0, of_rows=of_rows).tolist()
    dev_nll = nll / n_tokens
    return PerplexityFigures(dev_nll=dev_nll, dev_perplexity=perplexity_of(dev_nll), tokens=int(n_tokens))
