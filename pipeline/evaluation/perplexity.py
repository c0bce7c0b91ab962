"""Measures a model's perplexity and token accuracy on the dev set.

Perplexity is exp of the mean negative log-likelihood, without label smoothing.

    measure(Context(folder), checkpoint, dev).load().dev_perplexity
"""

from pipeline.artifacts import Checkpoint, EvaluationSet
from pipeline.context import Context
from pipeline.records import Record
from pipeline.store.artifact import JsonArtifact


class PerplexityRecord(Record):
    """`perplexity.json`: metrics on the dev set."""

    dev_nll: float
    """Nats per target token, END_ID included."""
    dev_perplexity: float
    tokens: int
    """Target tokens of the dev set, END_ID included."""
    dev_accuracy: float
    """Share of tokens predicted correctly given the reference prefix (§5.4: label smoothing "improves accuracy")."""


class Perplexity(JsonArtifact[PerplexityRecord]):
    """`perplexity.json` of a checkpoint."""

    record_file = "perplexity.json"


def measure(context: Context, checkpoint: Checkpoint, dev: EvaluationSet) -> Perplexity:
    """Writes a checkpoint's perplexity and token accuracy on the dev set, in float32 on `context.device`.

    Raises UserError if no dev pair is short enough to be computed.
    """
    import torch  # slow to import, and the artifact does not need it

    from model.loss import perplexity_of
    from pipeline.evaluation.translation import load_model
    from pipeline.text.encoding import encoded_set
    from pipeline.training.validation import split_sums

    with encoded_set(context, dev, checkpoint.vocabulary) as split:
        model = load_model(checkpoint.folder, context.device)
        n_correct = torch.zeros((), dtype=torch.int64, device=context.device)
        _, nll, n_tokens = split_sums(model, split, smoothing=0.0, n_correct=n_correct).tolist()
    scores = {"dev_nll": nll / n_tokens, "dev_perplexity": perplexity_of(nll / n_tokens)}
    record = PerplexityRecord(**scores, tokens=int(n_tokens), dev_accuracy=int(n_correct) / n_tokens)
    return Perplexity(context.folder).write(record)
