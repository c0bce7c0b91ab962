"""Loss sums of a split: what training measures on the dev set, and what perplexity is computed from."""

import math

import torch
from torch import Tensor

from model.loss import smoothed_cross_entropy
from model.training_step import shift_right
from model.transformer import Transformer
from pipeline.errors import UserError
from pipeline.store.artifacts import EncodedDataset
from pipeline.text.batching import by_length, cut
from pipeline.text.encoding import EncodedSplit

BATCH_TOKENS = 4096
"""Of one forward pass, on either side; has no part in the result but for rounding."""


def split_sums(model: Transformer, split: EncodedSplit, smoothing: float, rank: int = 0, workers: int = 1) -> Tensor:
    """(loss, NLL, target tokens) summed over the batches of one worker: batch i is of rank i % workers. float64, (3,).

    `loss` is label-smoothed. Computed in evaluation mode on the model's device; the model's mode is put back.
    """
    device, was_training = model.embedding.weight.device, model.training
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    if not len(split):
        return sums
    order = by_length(split.source_lengths, split.target_lengths, BATCH_TOKENS)
    bounds = cut(split.source_lengths[order], split.target_lengths[order], BATCH_TOKENS)
    model.eval()
    with torch.no_grad():
        for number in range(rank, len(bounds) - 1, workers):
            source_BS, target_BT = (
                tokens.to(device) for tokens in split.batch(order[bounds[number] : bounds[number + 1]])
            )
            hidden_BTD = model(source_BS, shift_right(target_BT))
            batch = smoothed_cross_entropy(
                hidden_BTD.flatten(0, 1), model.embedding.weight, target_BT.flatten(), smoothing
            )
            sums += torch.stack((batch.loss, batch.nll, batch.n_tokens)).double()
    model.train(was_training)
    return sums


def exp(nll: float) -> float:
    """Perplexity of a mean NLL in nats; e^700 where it is more than that."""
    return math.exp(min(nll, 700.0))


def check_vocabulary(dataset: EncodedDataset, vocabulary_size: int) -> None:
    """Raises UserError where a model has another number of pieces than the dataset."""
    pieces = dataset.read_json("dataset.json")["vocabulary_size"]
    if pieces != vocabulary_size:
        raise UserError(
            f"the model has vocabulary_size = {vocabulary_size} and the dataset {dataset.folder} {pieces} pieces; "
            "set vocabulary_size to that of the dataset's vocabulary"
        )
