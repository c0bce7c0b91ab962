import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from model.config import BEGIN_ID, END_ID, PAD_ID, TransformerConfig
from model.decoder import IncrementalDecoder
from model.search import NEVER_PRODUCED, Hypothesis, _best, beam_search
from model.transformer import Transformer
from tests.support.batches import hidden_of


def tiny(seed: int, vocabulary_size: int = 11, scale: float = 3.0, **more: int) -> Transformer:
    torch.manual_seed(seed)
    config = TransformerConfig(vocabulary_size, 2, d_model=16, d_ff=32, n_heads=2, d_k=5, d_v=7, dropout=0.3, **more)
    model = Transformer(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model


def sources(n: int, vocabulary_size: int = 11, longest: int = 9) -> list[list[int]]:
    generator = torch.Generator().manual_seed(n)
    lengths = torch.randint(0, longest, (n,), generator=generator).tolist()
    return [[*torch.randint(4, vocabulary_size, (k,), generator=generator).tolist(), END_ID] for k in lengths]


def batch(sentences: list[list[int]]) -> Tensor:
    return pad_sequence([torch.tensor(s) for s in sentences], batch_first=True, padding_value=PAD_ID)


def log_probabilities(model: Transformer, source: list[int], prefixes: list[list[int]]) -> Tensor:
    """Returns the log-probabilities of all next tokens after each prefix, uncached: (prefixes, length + 1, V)."""
    model.eval()
    with torch.no_grad():
        inputs = torch.tensor([[BEGIN_ID, *prefix] for prefix in prefixes])
        hidden = hidden_of(model, torch.tensor([source]).expand(len(prefixes), -1), inputs)
        return torch.log_softmax(model.logits(hidden), dim=-1)


def plain_search(
    model: Transformer,
    source: list[int],
    beam: int,
    alpha: float,
    extra: int,
    n_best: int,
    allows: Callable[[list[int]], bool] = lambda tokens: True,
) -> list[Hypothesis]:
    """Searches like `model.search`, but plainly: one sentence, lists, no cache and no early end."""
    limit = len(source) + extra
    open_: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    for length in range(1, limit + 1):
        candidates = []
        next_log_p = log_probabilities(model, source, [tokens for _, tokens in open_])[:, -1]
        for (log_p, tokens), row in zip(open_, next_log_p.tolist(), strict=True):
            for token, more in enumerate(row):
                if token not in NEVER_PRODUCED and (length < limit or token == END_ID) and allows([*tokens, token]):
                    candidates.append((log_p + more, [*tokens, token]))
        candidates = sorted(candidates, reverse=True)[: 2 * beam]
        for log_p, tokens in candidates[:beam]:
            if tokens[-1] == END_ID:
                finished.append(Hypothesis(tokens[:-1], log_p / ((5 + length) / 6) ** alpha, log_p))
        open_ = [(log_p, tokens) for log_p, tokens in candidates if tokens[-1] != END_ID][:beam]
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)[:n_best]


def assert_same(ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
    assert [h.tokens for h in ours] == [h.tokens for h in theirs]
    assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-10)
    assert [h.log_probability for h in ours] == pytest.approx([h.log_probability for h in theirs], abs=1e-10)


@pytest.mark.parametrize(
    ("beam", "alpha", "n_best", "scale"),
    [(1, 0.6, 1, 3.0), (4, 0.6, 1, 3.0), (4, 0.6, 3, 1.5), (3, 0.0, 2, 3.0), (5, 2.0, 4, 1.0), (2, 0.6, 6, 2.0)],
)
@pytest.mark.gpu
def test_batched_search_is_plain_search(
    beam: int, alpha: float, n_best: int, scale: float, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a cache that is pruned at every position."""
    monkeypatch.setattr("model.decoder.FIRST_PRUNED_TOKENS", 0)
    monkeypatch.setattr("model.decoder.PRUNING_GROWTH", 0)
    for seed in range(3):
        model = tiny(seed, scale=scale)
        sentences = sources(6)
        moved, source_BS = deepcopy(model).to(device), batch(sentences).to(device)
        found = beam_search(moved, source_BS, beam_size=beam, length_penalty=alpha, max_extra_tokens=6, n_best=n_best)
        for source, ours in zip(sentences, found, strict=True):
            assert_same(ours, plain_search(model, source, beam, alpha, 6, n_best))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.timeout(60)
def test_a_model_with_broken_weights_ends_at_the_maximum_length(broken: float) -> None:
    model = tiny(0)
    with torch.no_grad():
        model.embedding.weight.fill_(broken)
    assert beam_search(model, batch(sources(3)), max_extra_tokens=2) == [[], [], []]


def test_length_ends_with_the_input_plus_extra_and_with_learned_positions() -> None:
    sentences = sources(5, longest=6)
    for more, ends in (({}, math.inf), ({"positions": "learned", "max_positions": 8}, 8)):
        model = tiny(1, scale=1.0, **more)
        with torch.no_grad():
            bias_D = model.decoder[-1].feed_forward_norm.bias.copy_(torch.randn(16, dtype=torch.float64))
            model.embedding.weight[END_ID] = -20 * bias_D
        for source, hypotheses in zip(sentences, beam_search(model, batch(sentences), max_extra_tokens=4), strict=True):
            assert len(hypotheses[0].tokens) + 1 == min(len(source) + 4, ends)


@pytest.mark.parametrize(("n_tokens", "width", "n"), [(640, 4, 8), (128, 3, 6), (64, 1, 40), (64, 2, 200)])
def test_best_of_blocks_is_best_of_all(n_tokens: int, width: int, n: int) -> None:
    torch.manual_seed(n)
    log_p_BWV, log_p_BW = torch.randn(5, width, n_tokens).log_softmax(-1), torch.randn(5, width)
    log_p_BWV[2, 0, 7:] = -math.inf
    log_p_BW[3, -1] = -math.inf
    values_BC, index_BC = (log_p_BWV + log_p_BW[:, :, None]).flatten(1).topk(min(n, width * n_tokens), dim=1)
    log_p_BC, parent_BC, token_BC = _best(log_p_BWV, log_p_BW, n)
    torch.testing.assert_close(log_p_BC, values_BC)
    real_BC = values_BC > -math.inf
    assert torch.equal((parent_BC * n_tokens + token_BC)[real_BC], index_BC[real_BC])
    assert bool((token_BC[~real_BC] == END_ID).all())


def test_threads_share_a_decoder() -> None:
    sentences = sources(40)
    parts = [sentences[first::4] for first in range(4)]
    parts[0].append([5] * 300 + [END_ID])  # beyond the initial positions
    parts[1].append([6] * 700 + [END_ID])
    search = partial(beam_search, beam_size=2, max_extra_tokens=5)
    alone = [search(tiny(11), batch(part)) for part in parts]
    decoder = IncrementalDecoder(tiny(11).eval())
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda part: search(decoder, batch(part)), parts))
    for some, others in zip(alone, together, strict=True):
        for one, other in zip(some, others, strict=True):
            assert_same(one, other)


class OddLengths:
    """Allows outputs with an odd number of tokens, without END_ID, and no token twice in a row."""

    def start(self, limit_B: Tensor) -> "OddLengths":
        self.last_BW, self.n_tokens = torch.full_like(limit_B, BEGIN_ID)[:, None], 0
        return self

    def allowed(self) -> Tensor:
        allowed_BWV = torch.arange(11, device=self.last_BW.device) != self.last_BW[..., None]
        allowed_BWV[..., END_ID] = self.n_tokens % 2 == 1
        return allowed_BWV

    def advance(self, parents_BW: Tensor, tokens_BW: Tensor) -> None:
        assert int(parents_BW.max()) < self.last_BW.shape[1]
        self.last_BW, self.n_tokens = tokens_BW, self.n_tokens + 1

    def keep(self, sentences: Tensor) -> None:
        self.last_BW = self.last_BW[sentences]

    @staticmethod
    def allows(tokens: list[int]) -> bool:
        if tokens[-1] == END_ID:
            return len(tokens) % 2 == 0
        return len(tokens) < 2 or tokens[-1] != tokens[-2]


@pytest.mark.gpu
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (4, 3), (21, 5)])
def test_constrained_search_is_plain_search_of_what_is_allowed(beam: int, n_best: int, device: str) -> None:
    n_found = set()
    for seed in range(3):
        model, sentences = tiny(seed, scale=1.5), sources(6)
        moved, source_BS = deepcopy(model).to(device), batch(sentences).to(device)
        best = beam_search(moved, source_BS, beam_size=beam, max_extra_tokens=6, n_best=n_best, constraint=OddLengths())
        for source, ours in zip(sentences, best, strict=True):
            assert_same(ours, plain_search(model, source, beam, 0.6, 6, n_best, OddLengths.allows))
            n_found.add(len(ours))
    assert n_best in n_found


def test_nothing_to_find_is_refused() -> None:
    for name in ("beam_size", "n_best"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            beam_search(tiny(1), batch([[END_ID]]), **{name: 0})
    for negative in (-0.1, float("nan")):
        with pytest.raises(ValueError, match=f"length_penalty is {negative}; it must be at least 0"):
            beam_search(tiny(1), batch([[END_ID]]), length_penalty=negative)
