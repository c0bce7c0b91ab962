"""Beam search (paper §6.1): beam 4, length penalty α = 0.6 (Wu et al. 2016), input length plus at most 50 tokens.

    best = beam_search(model, source_BS)[0][0].tokens

The score of a hypothesis y is log P(y | x) / ((5 + |y|) / 6)^α, where |y| includes END_ID, as in the authors' code.
At each position, a sentence's 2·beam best continuations are considered: those that end and rank among the first `beam`
are finished, and the best `beam` of the others stay open. At the maximum length the only continuation is END_ID, and
its probability counts, so every score is the model's own for a complete output. PAD_ID, BEGIN_ID and UNKNOWN_ID are
never produced. Probabilities are not renormalised, neither for these nor for a `Constraint`.

Shapes: B open sentences, S source length, W hypotheses per sentence, N their rows (or the finished ones kept),
D = d_model, V vocabulary in G blocks of Z tokens, C candidates per sentence, X any number, T tokens decoded.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from model.architectures import make_decoder
from model.config import BEGIN_ID, END_ID, PAD_ID, SearchConfig
from model.decoder import LOGITS_MULTIPLE, Decoder, HypothesisCache, compacted
from model.transformer import EncoderDecoder

SEARCH_ROWS = {"cpu": 512, "cuda": 8192}
"""Hypotheses whose logits are processed at a time, by device type."""
NEVER_PRODUCED = range(PAD_ID, BEGIN_ID + 1)
"""PAD_ID, UNKNOWN_ID and BEGIN_ID."""


class Hypothesis(NamedTuple):
    """A finished output."""

    tokens: list[int]
    """The output's token ids, without END_ID."""
    score: float
    """Log-probability divided by the length penalty."""
    log_probability: float
    """In nats, END_ID included."""


class ConstraintState(Protocol):
    """A constraint's state for a batch's open hypotheses; its tensors are on the search's device."""

    def allowed(self) -> Tensor:
        """Returns a (B, W, V) mask, True for allowed next tokens, including END_ID where the output may end.

        A sentence without allowed tokens ends with the outputs found so far.
        """

    def advance(self, parents_BW: Tensor, tokens_BW: Tensor) -> None:
        """Replaces each sentence's hypotheses with continuations of `parents_BW` by `tokens_BW`; W may change.

        Hypotheses of probability 0, which pad the beam, have token END_ID and may be in any state.
        """

    def keep(self, sentences: Tensor) -> None:
        """Keeps only `sentences` (long, (B',)), in the order given."""


class Constraint(Protocol):
    """Restricts the outputs of a search."""

    def start(self, limit_B: Tensor) -> ConstraintState:
        """Returns the state of one empty hypothesis per sentence. `limit_B` is the maximum length, END_ID included."""


def penalty(n_tokens: Tensor | int, length_penalty: float) -> Tensor | float:
    """Returns ((5 + |y|) / 6)^α, which grows with |y| (Wu et al. 2016, equation 14)."""
    return ((5 + n_tokens) / 6) ** length_penalty


def max_length(n_source_tokens: Tensor, model: EncoderDecoder, max_extra_tokens: int) -> Tensor:
    """Returns the maximum output length, END_ID included; learned positions limit it too."""
    limit = n_source_tokens + max_extra_tokens
    return limit.clamp(max=model.config.max_positions) if model.config.positions == "learned" else limit


@torch.inference_mode()
def beam_search(
    model: EncoderDecoder | Decoder[Any],
    source_BS: Tensor,
    *,
    beam_size: int = SearchConfig.beam_size,
    length_penalty: float = SearchConfig.length_penalty,
    max_extra_tokens: int = SearchConfig.max_extra_tokens,
    n_best: int = 1,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Finds up to `n_best` outputs of each sentence, best first. Beam 1 is greedy search.

    `source_BS` holds token ids, each sentence ending in END_ID and padded with PAD_ID. Outputs do not depend on the
    other sentences of the batch. A sentence leaves the batch once no open hypothesis can beat its `n_best` finished
    ones. To decode many batches, pass the model's decoder. The model is put into evaluation mode for the call. Raises
    ValueError if `beam_size` or `n_best` is below 1, or if `length_penalty` is below 0, for which the stopping bound
    does not hold.
    """
    if beam_size < 1 or n_best < 1:
        raise ValueError(f"beam_size is {beam_size} and n_best is {n_best}; both must be at least 1")
    if not length_penalty >= 0:
        raise ValueError(f"length_penalty is {length_penalty}; it must be at least 0")
    finished: list[list[Hypothesis]] = [[] for _ in range(source_BS.shape[0])]
    decoder = make_decoder(model) if isinstance(model, EncoderDecoder) else model
    was_training = decoder.model.training
    decoder.model.eval()
    try:
        limit_B = max_length((source_BS != PAD_ID).sum(dim=1), decoder.model, max_extra_tokens)
        decoder.model.reserve_positions(int(limit_B.max()))
        constrained = constraint.start(limit_B) if constraint is not None else None
        dtype = torch.promote_types(decoder.model.embedding.weight.dtype, torch.float32)
        state = _Search.begin(decoder.start(source_BS), limit_B, n_best, constrained, dtype)
        while state.sentence_B.numel():
            state.advance(decoder, beam_size, length_penalty)
            state.release(finished, length_penalty)
    finally:
        decoder.model.train(was_training)
    return finished


@dataclass
class _Search:
    """The open sentences, each with W open hypotheses and its N best finished ones."""

    cache: HypothesisCache
    constraint: ConstraintState | None
    sentence_B: Tensor
    """Index in the source batch."""
    limit_B: Tensor
    tokens_BWT: Tensor
    """Tokens of the open hypotheses, BEGIN_ID first."""
    log_p_BW: Tensor
    """Log-probabilities of the open hypotheses; -inf for unused slots."""
    finished_BNT: Tensor
    finished_score_BN: Tensor
    """Scores, descending; -inf for unused slots."""
    finished_log_p_BN: Tensor

    @classmethod
    def begin(
        cls,
        cache: HypothesisCache,
        limit_B: Tensor,
        n_best: int,
        constraint: ConstraintState | None,
        dtype: torch.dtype,
    ) -> "_Search":
        batch, device = limit_B.shape[0], limit_B.device
        nothing_BN = torch.full((batch, n_best), -math.inf, dtype=dtype, device=device)
        return cls(
            cache,
            constraint,
            sentence_B=torch.arange(batch, device=device),
            limit_B=limit_B,
            tokens_BWT=torch.full((batch, 1, 1), BEGIN_ID, device=device),
            log_p_BW=torch.zeros(batch, 1, dtype=dtype, device=device),
            finished_BNT=torch.full((batch, n_best, 1), BEGIN_ID, device=device),
            finished_score_BN=nothing_BN,
            finished_log_p_BN=nothing_BN.clone(),
        )

    def advance(self, decoder: Decoder[Any], beam_size: int, length_penalty: float) -> None:
        """Decodes one position: continues, finishes and prunes hypotheses."""
        hidden_BWD = decoder.step(self.tokens_BWT[:, :, -1], self.cache)
        log_p_BC, parent_BC, token_BC = self._continuations(decoder, hidden_BWD, 2 * beam_size)
        ends_BC = token_BC == END_ID

        n_tokens = self.cache.length
        ended_log_p_BW = log_p_BC[:, :beam_size].masked_fill(~ends_BC[:, :beam_size], -math.inf)
        score_BX = torch.cat((self.finished_score_BN, ended_log_p_BW / penalty(n_tokens, length_penalty)), dim=1)
        self.finished_score_BN, kept_BN = score_BX.topk(self.finished_score_BN.shape[1], dim=1)
        self.finished_log_p_BN = torch.cat((self.finished_log_p_BN, ended_log_p_BW), dim=1).gather(1, kept_BN)
        ended_BWT = _extend(self.tokens_BWT, parent_BC[:, :beam_size], token_BC[:, :beam_size])
        padded_BNT = torch.nn.functional.pad(self.finished_BNT, (0, 1), value=PAD_ID)
        self.finished_BNT = _select(torch.cat((padded_BNT, ended_BWT), dim=1), kept_BN)

        open_log_p_BC = log_p_BC.masked_fill(ends_BC, -math.inf)
        self.log_p_BW, kept_BW = open_log_p_BC.topk(min(beam_size, open_log_p_BC.shape[1]), dim=1)
        parent_BW = parent_BC.gather(1, kept_BW)
        token_BW = token_BC.gather(1, kept_BW)
        self.tokens_BWT = _extend(self.tokens_BWT, parent_BW, token_BW)
        self.cache.branch(parent_BW)
        if self.constraint is not None:
            self.constraint.advance(parent_BW, token_BW)

    def _continuations(self, decoder: Decoder[Any], hidden_BWD: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Finds each sentence's `n` best, descending: log-probability, parent hypothesis and token, all BC.

        Processes a few sentences at a time, so that their logits stay in the CPU's cache.
        """
        batch, width = self.log_p_BW.shape
        closing_B = self.limit_B == self.cache.length
        closing = bool(closing_B.any())
        forbidden_BWV = ~self.constraint.allowed() if self.constraint is not None else None
        parts = []
        for first in range(0, batch, size := max(1, SEARCH_ROWS[hidden_BWD.device.type] // width)):
            sentences = slice(first, first + size)
            logits_NV = decoder.logits(hidden_BWD[sentences].flatten(0, 1))
            log_p_NV = torch.log_softmax(logits_NV, dim=-1, out=logits_NV)
            # A slice: a list of ids would be copied to the device synchronously at every position.
            log_p_NV[:, NEVER_PRODUCED.start : NEVER_PRODUCED.stop] = -math.inf
            log_p_BWV = log_p_NV.unflatten(0, (-1, width))
            if forbidden_BWV is not None:
                log_p_BWV[..., : forbidden_BWV.shape[2]].masked_fill_(forbidden_BWV[sentences], -math.inf)
            if closing:
                bias_V = torch.full_like(log_p_NV[0], -math.inf)
                bias_V[END_ID] = 0
                log_p_BWV[closing_B[sentences]] += bias_V
            parts.append(_best(log_p_BWV, self.log_p_BW[sentences], n))
        log_p_BC, parent_BC, token_BC = (torch.cat(column) for column in zip(*parts, strict=True))
        return log_p_BC, parent_BC, token_BC

    def release(self, finished: list[list[Hypothesis]], length_penalty: float) -> None:
        """Moves finished sentences to `finished`.

        As an output grows, its log-probability can only fall, and its penalty is at most that of the maximum length. So
        log_p / penalty(limit) bounds the score of every continuation. At the maximum length a sentence ends whatever
        its scores, which of a broken model may be NaN.
        """
        bound_B = self.log_p_BW.amax(dim=1) / penalty(self.limit_B, length_penalty)
        settled_B = (bound_B <= self.finished_score_BN[:, -1]) | (self.limit_B <= self.cache.length)
        if not bool(settled_B.any()):
            return
        columns = self.sentence_B, self.finished_BNT, self.finished_score_BN, self.finished_log_p_BN
        for sentence, *hypotheses in zip(*(column[settled_B].tolist() for column in columns), strict=True):
            for tokens, score, log_p in zip(*hypotheses, strict=True):
                if score > -math.inf:
                    finished[sentence].append(Hypothesis(tokens[1 : tokens.index(END_ID)], score, log_p))
        open_B = compacted(~settled_B)
        self.cache.keep(open_B)
        if self.constraint is not None:
            self.constraint.keep(open_B)
        of_open = "sentence_B", "limit_B", "tokens_BWT", "log_p_BW"
        for name in (*of_open, "finished_BNT", "finished_score_BN", "finished_log_p_BN"):
            setattr(self, name, getattr(self, name)[open_B])


def _best(log_p_BWV: Tensor, log_p_BW: Tensor, n_candidates: int) -> tuple[Tensor, Tensor, Tensor]:
    """Finds each sentence's best continuations, descending: log-probability, parent hypothesis and token, all BC.

    They lie in the blocks of 64 tokens with the best maxima, so a single pass over the vocabulary suffices. torch's
    `topk` takes ten times as long (11 to 17 µs for a row of 6,000 on one AVX-512 core).
    """
    batch, width, n_tokens = log_p_BWV.shape
    blocks_BGZ = log_p_BWV.view(batch, -1, LOGITS_MULTIPLE)
    n_blocks = n_tokens // LOGITS_MULTIPLE
    best_BG = (blocks_BGZ.amax(dim=2).view(batch, width, -1) + log_p_BW[:, :, None]).flatten(1)
    block_BC = best_BG.topk(min(n_candidates, best_BG.shape[1]), dim=1).indices
    parents_BC = block_BC // n_blocks
    chosen_BCZ = blocks_BGZ.gather(1, block_BC[:, :, None].expand(-1, -1, LOGITS_MULTIPLE))
    log_p_BX = (chosen_BCZ + log_p_BW.gather(1, parents_BC)[:, :, None]).flatten(1)
    log_p_BC, index_BC = log_p_BX.topk(min(n_candidates, log_p_BX.shape[1]), dim=1)
    block_BC, offset_BC = block_BC.gather(1, index_BC // LOGITS_MULTIPLE), index_BC % LOGITS_MULTIPLE
    token_BC = block_BC % n_blocks * LOGITS_MULTIPLE + offset_BC
    # If there are too few candidates, the rest have probability 0 and may lie beyond the vocabulary. A broken
    # model's are NaN.
    impossible_BC = ~(log_p_BC > -math.inf)
    token_BC = token_BC.masked_fill_(impossible_BC, END_ID)
    return log_p_BC.masked_fill_(impossible_BC, -math.inf), block_BC // n_blocks, token_BC


def _select(tokens_BWT: Tensor, rows_BX: Tensor) -> Tensor:
    """Selects hypotheses: tokens_BXT."""
    return tokens_BWT.gather(1, rows_BX[:, :, None].expand(-1, -1, tokens_BWT.shape[2]))


def _extend(tokens_BWT: Tensor, parent_BX: Tensor, token_BX: Tensor) -> Tensor:
    """Selects hypotheses and appends a token to each: tokens_BXT."""
    return torch.cat((_select(tokens_BWT, parent_BX), token_BX[:, :, None]), dim=2)
