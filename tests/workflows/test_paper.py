"""The paper's tables as checked against "Attention Is All You Need" (v5), and its setup as profiles."""

import hashlib
from dataclasses import asdict
from pathlib import Path

import pytest

from model.config import BASE, BIG, OptimizerConfig, SearchConfig
from pipeline.evaluation.costs import PAPER_SUSTAINED_FLOP_S
from tests.support.wsj_folder import make_silver, make_wsj
from workflows.paper import MODEL_SYMBOLS, TABLE_1, TABLE_2, TABLE_3, TABLE_4, symbols
from workflows.profiles.loading import load_profile
from workflows.profiles.parsing import load_parsing_profile
from workflows.profiles.profile import Recipe

CHECKED = {
    "TABLE_1": (TABLE_1, "e00fdbd1a6e93c78"),
    "TABLE_2": (TABLE_2, "991535a3b3150ab7"),
    "TABLE_3": (TABLE_3, "e975bb55359a67ae"),
    "TABLE_4": (TABLE_4, "745a06dc7345a7c2"),
    "footnote 5": (PAPER_SUSTAINED_FLOP_S, "7f05e6f90dd5313a"),
}
"""Each table with the sha256 of its numbers, which were compared with the printed table; a correction changes it."""
OPTIMIZER = {
    "warmup_steps": 4000,
    "learning_rate_scale": 1.0,
    "beta_1": 0.9,
    "beta_2": 0.98,
    "epsilon": 1e-9,
    "label_smoothing": 0.1,
}
SEARCH = {"beam_size": 4, "length_penalty": 0.6, "max_extra_tokens": 50}
"""§5.3, §5.4 and §6.1: the settings shared by all translators."""


@pytest.mark.parametrize("name", CHECKED)
def test_tables_are_as_checked(name: str) -> None:
    table, sha256 = CHECKED[name]
    assert hashlib.sha256(repr(table).encode()).hexdigest()[:16] == sha256


def test_models_are_as_printed() -> None:
    printed = (
        "N 6, d_model 512, d_ff 2048, h 8, d_k 64, d_v 64, P_drop 0.1, positions sinusoidal",
        "N 6, d_model 1024, d_ff 4096, h 16, d_k 64, d_v 64, P_drop 0.3, positions sinusoidal",
    )
    assert tuple(symbols({name: getattr(model, name) for name in MODEL_SYMBOLS}) for model in (BASE, BIG)) == printed
    assert {**asdict(OptimizerConfig()), **asdict(SearchConfig())} == OPTIMIZER | SEARCH


def checked(recipe: Recipe, updates: int, last: int, every: int) -> None:
    """Compares a recipe with the paper's updates, averaged checkpoints and shared settings."""
    training = recipe.training
    assert (training.updates, training.checkpoint_updates, recipe.averaging.last) == (updates, every, last)
    assert training.budget_tokens == 25_000
    assert asdict(training.optimizer) == OPTIMIZER


@pytest.mark.parametrize(("pair", "vocabulary_size", "dropout"), [("en-de", 37_000, 0.3), ("en-fr", 32_000, 0.1)])
def test_wmt14_is_the_paper(pair: str, vocabulary_size: int, dropout: float) -> None:
    """§5.1 to §6.1: checkpoints of 10 minutes are 1,500 or 600 updates; EN-FR big has P_drop 0.1 instead of 0.3."""
    profile = load_profile("wmt14").for_pair(pair)
    base, big = profile.recipes["base"], profile.recipes["big"]
    checked(base, 100_000, 5, 1500)
    checked(big, 300_000, 20, 600)
    assert asdict(base.training.model) == asdict(BASE) | {"vocabulary_size": vocabulary_size}
    assert asdict(big.training.model) == asdict(BIG) | {"vocabulary_size": vocabulary_size, "dropout": dropout}
    assert profile.vocabulary.size == vocabulary_size
    assert {name: getattr(profile.decoding, name) for name in SEARCH} == SEARCH
    corpus = profile.corpora[pair]
    assert (corpus.target, corpus.test.pairs) == (pair[-2:], 3003)


@pytest.mark.parametrize(("row", "vocabulary_size"), [("supervised", 16_000), ("semi-supervised", 32_000)])
def test_wsj_is_the_paper(tmp_path: Path, row: str, vocabulary_size: int) -> None:
    """§6.3: 4 layers, d_model 1024, 16 K or 32 K pieces, beam 21, α 0.3, input + 300; all else is base's."""
    silver = make_silver(tmp_path / "silver.trees", 3)
    profile = load_parsing_profile(treebank=make_wsj(tmp_path / "wsj", 1), silver=[silver]).for_pair(row)
    assert (profile.name, profile.vocabulary.size) == ("wsj", vocabulary_size)
    assert list(profile.corpora) == ["supervised", "semi-supervised"]
    checked(profile.recipes["parser"], 100_000, 5, 1500)
    sizes = {"n_layers": 4, "d_model": 1024, "d_k": 128, "d_v": 128, "vocabulary_size": vocabulary_size}
    assert asdict(profile.recipes["parser"].training.model) == asdict(BASE) | sizes
    search = {"beam_size": 21, "length_penalty": 0.3, "max_extra_tokens": 300}
    assert {name: getattr(profile.decoding, name) for name in SEARCH} == search
    choice = profile.choice  # "the dropout, both attention and residual [...], learning rates and beam size"
    assert BASE.dropout in choice.dropouts
    assert choice.attention_dropouts == (0.0, 0.2)
    warmup = {"supervised": 16_000, "semi-supervised": None}[row]  # docs/table4.md
    assert choice.learning_rate_scales == ((0.5, None), (1.0, None), (5.0, warmup))
    assert 21 in choice.beam_sizes
