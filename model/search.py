"""Beam search (paper §6.1): beam 4, length penalty α = 0.6 of Wu et al. 2016, output at most the input plus 50 tokens.

    best = beam_search(model, source_BS)[0][0].tokens

A hypothesis y is scored log P(y | x) / ((5 + |y|) / 6)^α, where |y| counts END_ID, as the authors' own code does. At
each position the 2·beam best continuations of the open hypotheses of a sentence are taken: those that end and stand
among the first `beam` are finished, the best `beam` of the others stay open. At the greatest length the only
continuation is END_ID, whose probability counts, so a score is always the model's own of a complete output. PAD_ID,
BEGIN_ID and UNKNOWN_ID stand for no text and are never produced; the probabilities of the others are not raised for
that.

Shapes: B sentences still open, S source length, W hypotheses of a sentence, N rows of them (or the finished ones kept),
D = d_model, V vocabulary, G blocks of Z tokens of it, C candidates of a sentence, X all that are compared, T tokens
decoded.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from model.config import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID
from model.incremental import LOGITS_MULTIPLE, DecoderCache, IncrementalDecoder, compacted
from model.transformer import Transformer

CHUNK_ROWS = {"cpu": 512, "cuda": 8192}
"""Hypotheses whose logits are made and gone through at once."""
NEVER_PRODUCED = (PAD_ID, UNKNOWN_ID, BEGIN_ID)


class Hypothesis(NamedTuple):
    """One finished output."""

    tokens: list[int]
    """Without END_ID."""
    score: float
    """log_probability / penalty."""
    log_probability: float
    """Nats, END_ID counted."""


def penalty(n_tokens: Tensor | int, length_penalty: float) -> Tensor | float:
    """((5 + |y|) / 6)^α (Wu et al. 2016, equation 14); grows with |y|."""
    return ((5 + n_tokens) / 6) ** length_penalty


def greatest_length(n_source_tokens: Tensor, model: Transformer, max_extra_tokens: int) -> Tensor:
    """Most tokens of an output, END_ID counted on both sides; learned positions end it earlier."""
    limit = n_source_tokens + max_extra_tokens
    return limit.clamp(max=model.config.max_positions) if model.positions is not None else limit


@torch.inference_mode()
def beam_search(
    model: Transformer | IncrementalDecoder,
    source_BS: Tensor,
    *,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_extra_tokens: int = 50,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The `n_best` outputs of each sentence, best first (fewer where the search finds fewer). Beam 1 is greedy.

    `source_BS` holds token ids, each sentence ending in END_ID, PAD_ID behind; what comes out for a sentence does not
    depend on its neighbours. A sentence leaves the batch when no open hypothesis can beat its `n_best` finished ones.
    For many batches give the model's `IncrementalDecoder`. The model is put into evaluation mode while this runs.
    Raises ValueError where `beam_size` or `n_best` is below 1.
    """
    if beam_size < 1 or n_best < 1:
        raise ValueError(f"beam_size is {beam_size} and n_best is {n_best}; both must be at least 1")
    found: list[list[Hypothesis]] = [[] for _ in range(source_BS.shape[0])]
    decoder = IncrementalDecoder(model) if isinstance(model, Transformer) else model
    was_training = decoder.model.training
    decoder.model.eval()
    try:
        limit_B = greatest_length((source_BS != PAD_ID).sum(dim=1), decoder.model, max_extra_tokens)
        state = _Search.begin(decoder.start(source_BS), limit_B, n_best)
        while state.sentence_B.numel():
            state.advance(decoder, beam_size, length_penalty)
            state.release(found, length_penalty)
    finally:
        decoder.model.train(was_training)
    return found


@dataclass
class _Search:
    """The sentences still open, each with W open hypotheses and the N best finished ones."""

    cache: DecoderCache
    sentence_B: Tensor
    """Row of the sentence in the source."""
    limit_B: Tensor
    tokens_BWT: Tensor
    """Begins with BEGIN_ID."""
    log_p_BW: Tensor
    """-inf where there is no hypothesis."""
    finished_BNT: Tensor
    finished_score_BN: Tensor
    """Descending; -inf where there is none yet."""
    finished_log_p_BN: Tensor

    @classmethod
    def begin(cls, cache: DecoderCache, limit_B: Tensor, n_best: int) -> "_Search":
        batch, device = limit_B.shape[0], limit_B.device
        dtype = torch.promote_types(cache.bias_BWM.dtype, torch.float32)
        nothing_BN = torch.full((batch, n_best), -math.inf, dtype=dtype, device=device)
        return cls(
            cache,
            sentence_B=torch.arange(batch, device=device),
            limit_B=limit_B,
            tokens_BWT=torch.full((batch, 1, 1), BEGIN_ID, device=device),
            log_p_BW=torch.zeros(batch, 1, dtype=dtype, device=device),
            finished_BNT=torch.full((batch, n_best, 1), BEGIN_ID, device=device),
            finished_score_BN=nothing_BN,
            finished_log_p_BN=nothing_BN.clone(),
        )

    def advance(self, decoder: IncrementalDecoder, beam_size: int, length_penalty: float) -> None:
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
        self.tokens_BWT = _extend(self.tokens_BWT, parent_BW, token_BC.gather(1, kept_BW))
        self.cache.branch(parent_BW)

    def _continuations(self, decoder: IncrementalDecoder, hidden_BWD: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """The `n` best of each sentence, descending: log-probability, parent hypothesis and token, all BC.

        Some sentences at a time, so that their logits stay in the processor's cache.
        """
        batch, width = self.log_p_BW.shape
        closing_B = self.limit_B == self.cache.length
        closing = bool(closing_B.any())
        parts = []
        for first in range(0, batch, size := max(1, CHUNK_ROWS[hidden_BWD.device.type] // width)):
            sentences = slice(first, first + size)
            logits_NV = decoder.logits(hidden_BWD[sentences].flatten(0, 1)).to(self.log_p_BW.dtype)
            log_p_NV = torch.log_softmax(logits_NV, dim=-1, out=logits_NV)
            log_p_NV[:, NEVER_PRODUCED] = -math.inf
            log_p_BWV = log_p_NV.unflatten(0, (-1, width))
            if closing:
                log_p_BWV[closing_B[sentences]] += _end_only(log_p_NV)
            parts.append(_best(log_p_BWV, self.log_p_BW[sentences], n))
        log_p_BC, parent_BC, token_BC = (torch.cat(column) for column in zip(*parts, strict=True))
        return log_p_BC, parent_BC, token_BC

    def release(self, found: list[list[Hypothesis]], length_penalty: float) -> None:
        """Moves sentences whose result is settled into `found`.

        A log-probability only falls as an output grows, and the penalty it is divided by is at most that of the
        greatest length: log_p / penalty(limit) bounds the score of everything that may come of an open hypothesis.
        """
        bound_B = self.log_p_BW.amax(dim=1) / penalty(self.limit_B, length_penalty)
        settled_B = bound_B <= self.finished_score_BN[:, -1]
        if not bool(settled_B.any()):
            return
        columns = self.sentence_B, self.finished_BNT, self.finished_score_BN, self.finished_log_p_BN
        for sentence, *hypotheses in zip(*(column[settled_B].tolist() for column in columns), strict=True):
            for tokens, score, log_p in zip(*hypotheses, strict=True):
                if score > -math.inf:
                    found[sentence].append(Hypothesis(tokens[1 : tokens.index(END_ID)], score, log_p))
        open_B = compacted(~settled_B)
        self.cache.keep(open_B)
        for name in ("sentence_B", "limit_B", "tokens_BWT", "log_p_BW"):
            setattr(self, name, getattr(self, name)[open_B])
        for name in ("finished_BNT", "finished_score_BN", "finished_log_p_BN"):
            setattr(self, name, getattr(self, name)[open_B])


def _best(log_p_BWV: Tensor, log_p_BW: Tensor, n_candidates: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence, descending: log-probability, parent hypothesis and token, all BC.

    They are in those blocks of 64 tokens that have the best maxima, so the vocabulary is gone through once for
    the maxima; torch's own `topk` of it takes ten times as long (11 to 17 µs a row of 6 000 on one AVX-512 core).
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
    # What fills up a list of too few may be no token at all.
    return log_p_BC, block_BC // n_blocks, token_BC.masked_fill_(log_p_BC == -math.inf, END_ID)


def _end_only(log_p_NV: Tensor) -> Tensor:
    """What leaves END_ID alone when it is added: 0 there, -inf elsewhere, (V,)."""
    bias_V = torch.full_like(log_p_NV[0], -math.inf)
    bias_V[END_ID] = 0
    return bias_V


def _select(tokens_BWT: Tensor, rows_BX: Tensor) -> Tensor:
    """Rows of each sentence: tokens_BXT."""
    return tokens_BWT.gather(1, rows_BX[:, :, None].expand(-1, -1, tokens_BWT.shape[2]))


def _extend(tokens_BWT: Tensor, parent_BX: Tensor, token_BX: Tensor) -> Tensor:
    """Chosen hypotheses with one more token: tokens_BXT."""
    return torch.cat((_select(tokens_BWT, parent_BX), token_BX[:, :, None]), dim=2)
