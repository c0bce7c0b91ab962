"""The experiments of "Attention Is All You Need" (v5), held against what §3, §5 and §6 say of them."""

from dataclasses import asdict

import pytest

from model.config import BASE, BIG, OptimizerConfig, SearchConfig
from workflows import paper

PRINTED_MODELS = """
base N 6, d_model 512,  d_ff 2048, h 8,  d_k 64, d_v 64, P_drop 0.1, positions sinusoidal
big  N 6, d_model 1024, d_ff 4096, h 16, d_k 64, d_v 64, P_drop 0.3, positions sinusoidal
"""
"""Table 3, first and last row; §3.5 for the positions."""

PRINTED_TRAININGS = """
en-de base | 4500000 pairs  | 37000 tokens | 100000 steps of 0.4 s | 12 hours | last 5 of every 1500
en-de big  | 4500000 pairs  | 37000 tokens | 300000 steps of 1.0 s | 3.5 days | last 20 of every 600
en-fr base | 36000000 pairs | 32000 tokens | 100000 steps of 0.4 s | 12 hours | last 5 of every 1500
en-fr big  | 36000000 pairs | 32000 tokens | 300000 steps of 1.0 s | 3.5 days | last 20 of every 600
"""
"""§5.1 for the data, §5.2 for the steps, §6.1 for the averaged checkpoints, whose 10 minutes are
updates of the printed step time."""

OF_ALL = {
    "corpus": "WMT 2014",
    "budget_tokens": 25_000,
    "hardware": "8 × NVIDIA P100",
    "beta_1": 0.9,
    "beta_2": 0.98,
    "epsilon": 1e-9,
    "warmup_steps": 4000,
    "learning_rate_scale": 1.0,
    "label_smoothing": 0.1,
    "checkpoint_minutes": 10.0,
    "beam_size": 4,
    "length_penalty": 0.6,
    "max_extra_tokens": 50,
    "test_set": "newstest2014",
    "test_sentences": 3003,
}
"""§5.1 to §5.4 and §6.1, the same for both models and both pairs."""


def test_models_are_as_printed() -> None:
    """Base and big have the sizes of Table 3."""
    for line, model in zip(PRINTED_MODELS.strip().split("\n"), (BASE, BIG), strict=True):
        sizes = {name: getattr(model, name) for name in paper.MODEL_SYMBOLS}
        assert paper.symbols(sizes) == " ".join(line.split()[1:])


def test_trainings_are_as_printed() -> None:
    """Every training has the data, steps, duration and averaging of the paper, and what is the same for all."""
    for line in PRINTED_TRAININGS.strip().split("\n"):
        pair, model = line.split()[:2]
        training = paper.experiment(pair, model)
        steps = f"{training.updates} steps of {training.step_s} s"
        averaged = f"last {training.averaged} of every {training.checkpoint_updates}"
        cells = f"{training.pairs} pairs", f"{training.vocabulary_size} tokens", steps, training.duration, averaged
        assert list(cells) == [cell.strip() for cell in line.split("|")[1:]]
        assert {name: value for name, value in asdict(training).items() if name in OF_ALL} == OF_ALL


@pytest.mark.parametrize(("pair", "model", "dropout"), [("en-de", "big", 0.3), ("en-fr", "big", 0.1)])
def test_only_dropout_differs_between_the_big_models(pair: str, model: str, dropout: float) -> None:
    """§6.1 trains big with P_drop 0.1 on EN-FR; everything else is that of the big model."""
    assert asdict(paper.experiment(pair, model).model) == asdict(BIG) | {"dropout": dropout}


def test_settings_without_a_choice_are_the_paper_s() -> None:
    """The defaults of optimizer and search are those of §5.3, §5.4 and §6.1."""
    defaults = {**asdict(OptimizerConfig()), **asdict(SearchConfig())}
    assert defaults == {name: value for name, value in OF_ALL.items() if name in defaults}
    assert len(defaults) == 9


def test_rows_of_table_3_are_tested_on_newstest2013_without_averaging() -> None:
    """§6.2: the 3000 sentences of the development set, only the last checkpoint, and the row's own smoothing."""
    for name, smoothing, updates in (("base", 0.1, 100_000), ("D4", 0.2, 100_000), ("big", 0.1, 300_000)):
        row = paper.variation_experiment(name)
        assert (row.test_set, row.test_sentences, row.averaged) == ("newstest2013", 3000, 1)
        assert (row.label_smoothing, row.updates) == (smoothing, updates)
        assert row.model == paper.VARIATIONS[name].model(37_000)
    assert paper.variation_experiment("a row of one's own") == paper.variation_experiment("base")
