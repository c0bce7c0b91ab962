"""Constrained searches with random models end in trees, and the constraint rejects no valid tree."""

import itertools
import random
import re
from collections.abc import Iterator

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from model.config import END_ID, PAD_ID, TransformerConfig
from model.search import beam_search
from model.transformer import Transformer
from pipeline.parsing.constraint import TreeTokens, WellFormed

WORD, OPENING, CLOSING = 5, (4, 8, 9), (6, 7, 10)
TOKENS = TreeTokens(13, OPENING, CLOSING, [WORD])


def is_tree(tokens: list[int], n_words: int) -> bool:
    names = {WORD: "x"} | {token: f"({i}" for i, token in enumerate(OPENING)}
    names |= {token: f"){i}" for i, token in enumerate(CLOSING)}
    if tokens.count(WORD) != n_words or not set(tokens) <= set(names):
        return False
    text, before = " ".join(names[token] for token in tokens), ""
    if text.startswith("x"):
        return False
    while text != before:
        before, text = text, re.sub(r"\((\d+)((?: x)+) \)\1(?!\d)", "x", text)
    return text == "x"


def openings(tree: list[int], tokens: TreeTokens = TOKENS) -> tuple[int, int]:
    n_open = in_a_row = deepest = longest = 0
    for token in tree:
        in_a_row = in_a_row + 1 if token in tokens.opening else 0
        n_open += (token in tokens.opening) - (token in tokens.closing)
        deepest, longest = max(deepest, n_open), max(longest, in_a_row)
    return deepest, longest


def random_model(seed: int) -> Transformer:
    """Returns a model whose next token is nearly certain for some seeds and nearly uniform for others."""
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig(13, 1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, dropout=0.0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_((0.3, 1, 4)[seed % 3] if parameter.dim() > 1 else 1)
    return model


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [1, 4, 21])
def test_every_output_is_a_tree_with_the_sentences_words(beam: int, device: str) -> None:
    draw = random.Random(beam)
    for seed in range(12):
        n_words = [draw.randint(1, 8) for _ in range(6)]
        n_pieces = [n + draw.randint(1, 3) for n in n_words]
        extra, most_open, most_in_a_row = map(draw.choice, ([2, 3, 5, 40], [1, 2, 4, 100], [1, 3, 9]))
        sources = [[*(draw.randint(4, 12) for _ in range(n)), END_ID] for n in n_pieces]
        source_BS = pad_sequence([torch.tensor(s) for s in sources], batch_first=True, padding_value=PAD_ID)
        model, constraint = random_model(seed).to(device), WellFormed(TOKENS, n_words, most_open, most_in_a_row)
        options = {"beam_size": beam, "length_penalty": 0.3, "max_extra_tokens": extra, "n_best": min(beam, 3)}
        best_of = beam_search(model, source_BS.to(device), constraint=constraint, **options)
        for n, source, hypotheses in zip(n_words, sources, best_of, strict=True):
            assert hypotheses
            for hypothesis in hypotheses:
                assert is_tree(hypothesis.tokens, n)
                assert len(hypothesis.tokens) < len(source) + extra
                deepest, longest = openings(hypothesis.tokens)
                assert deepest <= most_open
                assert longest <= most_in_a_row


def allowed_outputs(n_words: int, limit: int, rules: WellFormed) -> Iterator[tuple[int, ...]]:
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        tokens = waiting.pop()
        trees = rules.start(torch.tensor([limit]))
        for token in tokens:
            trees.advance(torch.tensor([[0]]), torch.tensor([[token]]))
        following = trees.allowed()[0, 0].nonzero().flatten().tolist()
        assert following  # no dead end
        for token in following:
            if token == END_ID:
                yield tokens
            else:
                waiting.append((*tokens, token))


@pytest.mark.parametrize(("n_words", "limit"), [(1, 4), (1, 8), (2, 5), (2, 8), (3, 8)])
def test_exactly_the_trees_are_allowed(n_words: int, limit: int) -> None:
    tokens = TreeTokens(13, OPENING[:2], CLOSING[:2], [WORD])
    alphabet = (*OPENING[:2], *CLOSING[:2], WORD)
    texts = itertools.chain.from_iterable(itertools.product(alphabet, repeat=k) for k in range(limit))
    trees = {text for text in texts if is_tree(list(text), n_words)}
    allowed = list(allowed_outputs(n_words, limit, WellFormed(tokens, [n_words])))
    assert len(allowed) == len(set(allowed))
    assert set(allowed) == trees
    assert len(trees) > 1
