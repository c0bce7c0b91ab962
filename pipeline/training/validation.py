"""Loss sums of a split, for the dev set during training and for perplexity; samples; and a check that workers agree."""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.batch import Batch
from model.config import PAD_ID
from model.loss import smoothed_cross_entropy
from model.search import beam_search
from model.transformer import EncoderDecoder
from pipeline.artifacts import VOCABULARY_FILE
from pipeline.errors import UserError
from pipeline.text.batching import by_length, cut
from pipeline.text.encoding import EncodedSplit, decode_ids
from pipeline.text.vocabulary import load
from pipeline.training.workers import Workers

BATCH_TOKENS = 4096
"""Maximum tokens per side of one forward pass; affects results by rounding only."""
N_SAMPLES = 3
"""Sentences whose translations are shown after each validation."""
SUMMED_COLUMNS = 4096
"""The number of sums behind a hash of weights. Rounding errors could cancel in one sum, but not in all of them."""


def batches(split: EncodedSplit) -> list[NDArray[np.int64]]:
    """Splits the computable rows of a split, of which there are some, into batches of similar length."""
    order = by_length(split.source_lengths, split.target_lengths, split.computed_rows)
    return np.split(order, cut(*split.lengths_of(order), BATCH_TOKENS)[1:-1])


def largest_batch(split: EncodedSplit) -> NDArray[np.int64]:
    """Returns the batch that needs the most memory: the one with the most query-key pairs."""

    def attended(rows: NDArray[np.int64]) -> int:
        return len(rows) * max(int(side.max()) for side in split.lengths_of(rows)) ** 2

    return max(batches(split), key=attended)


def split_sums(
    model: EncoderDecoder,
    split: EncodedSplit,
    smoothing: float,
    rank: int = 0,
    workers: int = 1,
    *,
    of_rows: NDArray[np.int64] | None = None,
    n_correct: Tensor | None = None,
) -> Tensor:
    """Sums label-smoothed loss, NLL and target tokens over one worker's batches: float64, (3,).

    Batch i belongs to rank i % workers. `of_rows`, if given, are the only batch. Pairs longer than LONGEST_TOKENS never
    count. The number of correct argmax predictions is added to `n_correct`, an integer tensor on the model's device, if
    given. The model computes in evaluation mode and is then restored to its previous mode.
    """
    weight_VD, was_training = model.embedding.weight, model.training
    sums = torch.zeros(3, dtype=torch.float64, device=weight_VD.device)
    model.eval()
    with torch.no_grad():
        for rows in batches(split)[rank::workers] if of_rows is None else [of_rows]:
            source_BS, target_BT = (tokens.to(weight_VD.device) for tokens in split.batch(rows))
            batch = Batch.padded(source_BS, target_BT, weight_VD.dtype)
            hidden_ND = model(batch.source, batch.inputs)
            loss, nll = smoothed_cross_entropy(hidden_ND, weight_VD, batch.targets_N, smoothing, n_correct=n_correct)
            sums += torch.stack((loss, nll, (batch.targets_N != PAD_ID).sum())).double()
    model.train(was_training)
    return sums


def samples(model: EncoderDecoder, split: EncodedSplit) -> list[dict[str, str]]:
    """Translates the split's first sentences greedily: source, reference and translation of each."""
    source_BS, target_BT = split.batch(split.computed_rows[:N_SAMPLES])
    found = beam_search(model, source_BS.to(model.embedding.weight.device), beam_size=1)
    vocabulary = load(split.dataset.folder / VOCABULARY_FILE)
    ids = source_BS.tolist(), target_BT.tolist(), [hypotheses[0].tokens for hypotheses in found]
    texts = zip(*(decode_ids(vocabulary, sentences) for sentences in ids), strict=True)
    return [dict(zip(("source", "reference", "translation"), text, strict=True)) for text in texts]


def check_replicas(workers: Workers, weights_P: Tensor, update: int) -> None:
    """Raises UserError at every rank if workers' weights differ in any bit; a collective.

    Their bits are summed as integers on the device, in one pass, and only hashes of the sums are exchanged.
    """
    bits_P = weights_P.view(torch.int32)
    whole = len(bits_P) // SUMMED_COLUMNS * SUMMED_COLUMNS
    sums = bits_P[:whole].view(-1, SUMMED_COLUMNS).sum(0, dtype=torch.int64), bits_P[whole:]
    hashed = hashlib.blake2b(b"".join(part.cpu().numpy().tobytes() for part in sums)).hexdigest()
    hashes = workers.gather_objects(hashed)
    if differing := [rank for rank, other in enumerate(hashes) if other != hashes[0]]:
        raise UserError(
            f"update {update}: the weights of rank 0 and rank {differing[0]} differ, so one of them computed wrongly; "
            "check both machines' memory and GPUs, and rerun the same command to continue from the last checkpoint"
        )
