"""Tables and experiments of `workflows.paper`, compared with "Attention Is All You Need" (v5) as printed."""

import re
from dataclasses import asdict

import pytest

from model.config import BASE, BIG, OptimizerConfig, SearchConfig
from pipeline.evaluation.costs import PAPER_SUSTAINED_FLOP_S
from workflows.paper import (
    MODEL_SYMBOLS,
    SEPARABLE,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    VARIATIONS,
    experiment,
    parser_experiment,
    symbols,
    variation_experiment,
)

PRINTED_TABLE_1 = """
self-attention              O(n²·d)    O(1)  O(1)
recurrent                   O(n·d²)    O(n)  O(n)
convolutional               O(k·n·d²)  O(1)  O(log_k(n))
restricted self-attention   O(r·n·d)   O(1)  O(n/r)
"""
"""Layer type, complexity per layer, sequential operations, maximum path length."""

PRINTED_TABLE_2 = """
ByteNet                     23.75
Deep-Att + PosUnk                 39.2          1.0e20
GNMT + RL                   24.6  39.92  2.3e19 1.4e20
ConvS2S                     25.16 40.46  9.6e18 1.5e20
MoE                         26.03 40.56  2.0e19 1.2e20
Deep-Att + PosUnk ensemble        40.4          8.0e20
GNMT + RL ensemble          26.30 41.16  1.8e20 1.1e21
ConvS2S ensemble            26.36 41.29  7.7e19 1.2e21
Transformer (base)          27.3  38.1   3.3e18 3.3e18
Transformer (big)           28.4  41.8   2.3e19 2.3e19
"""
"""Name, BLEU EN-DE and EN-FR, training cost EN-DE and EN-FR in FLOP."""

PRINTED_TABLE_3 = """
base |                                          | 100000 | 4.92 | 25.8 | 65
A1   | h 1, d_k 512, d_v 512                    |        | 5.29 | 24.9 |
A2   | h 4, d_k 128, d_v 128                    |        | 5.00 | 25.5 |
A3   | h 16, d_k 32, d_v 32                     |        | 4.91 | 25.8 |
A4   | h 32, d_k 16, d_v 16                     |        | 5.01 | 25.4 |
B1   | d_k 16                                   |        | 5.16 | 25.1 | 58
B2   | d_k 32                                   |        | 5.01 | 25.4 | 60
C1   | N 2                                      |        | 6.11 | 23.7 | 36
C2   | N 4                                      |        | 5.19 | 25.3 | 50
C3   | N 8                                      |        | 4.88 | 25.5 | 80
C4   | d_model 256, d_k 32, d_v 32              |        | 5.75 | 24.5 | 28
C5   | d_model 1024, d_k 128, d_v 128           |        | 4.66 | 26.0 | 168
C6   | d_ff 1024                                |        | 5.12 | 25.4 | 53
C7   | d_ff 4096                                |        | 4.75 | 26.2 | 90
D1   | P_drop 0.0                               |        | 5.77 | 24.6 |
D2   | P_drop 0.2                               |        | 4.95 | 25.5 |
D3   | ε_ls 0.0                                 |        | 4.67 | 25.3 |
D4   | ε_ls 0.2                                 |        | 5.47 | 25.7 |
E    | positions learned                        |        | 4.92 | 25.7 |
big  | d_model 1024, d_ff 4096, h 16, P_drop 0.3 | 300000 | 4.33 | 26.4 | 213
"""
"""Row, difference from base, steps, dev perplexity, dev BLEU, parameters in millions."""

PRINTED_TABLE_4 = """
Vinyals & Kaiser et al. (2014) | WSJ only, discriminative | 88.3
Petrov et al. (2006)           | WSJ only, discriminative | 90.4
Zhu et al. (2013)              | WSJ only, discriminative | 90.4
Dyer et al. (2016)             | WSJ only, discriminative | 91.7
Transformer (4 layers)         | WSJ only, discriminative | 91.3
Zhu et al. (2013)              | semi-supervised          | 91.3
Huang & Harper (2009)          | semi-supervised          | 91.3
McClosky et al. (2006)         | semi-supervised          | 92.1
Vinyals & Kaiser et al. (2014) | semi-supervised          | 92.1
Transformer (4 layers)         | semi-supervised          | 92.7
Luong et al. (2015)            | multi-task               | 93.0
Dyer et al. (2016)             | generative               | 93.3
"""
"""Parser, training, F1 on section 23."""


def test_table_1_is_as_printed() -> None:
    """Every layer type has its complexity, sequential operations and path. The exponents match the complexity."""
    lines = [re.split(r"\s{2,}", line) for line in PRINTED_TABLE_1.strip().split("\n")]
    assert [[row.name, row.complexity, row.sequential, row.path] for row in TABLE_1] == lines
    assert SEPARABLE.complexity == "O(k·n·d + n·d²)"
    for row in (*TABLE_1, SEPARABLE):
        leading = row.complexity.strip("O()").split(" + ")[-1]
        assert ("n²" in leading, "d²" in leading) == (row.exponent_n == 2, row.exponent_d == 2)


def test_table_2_is_as_printed() -> None:
    """Every name, BLEU score (with its digits) and cost, with gaps as printed."""
    columns = slice(28, 33), slice(34, 40), slice(41, 47), slice(48, 54)
    lines = PRINTED_TABLE_2.strip("\n").split("\n")
    assert [row.name for row in TABLE_2] == [line[:27].strip() for line in lines]
    for row, line in zip(TABLE_2, lines, strict=True):
        cells = [line[column].strip() for column in columns]
        scores = [row.bleu.get(pair, "") for pair in ("en-de", "en-fr")]
        costs = [row.cost_flop.get(pair) for pair in ("en-de", "en-fr")]
        assert scores == cells[:2], row.name
        assert costs == [float(cell) if cell else None for cell in cells[2:]], row.name


def test_table_3_is_as_printed() -> None:
    """Every row with its difference, steps, perplexity, BLEU and parameters."""
    lines = [[cell.strip() for cell in line.split("|")] for line in PRINTED_TABLE_3.strip("\n").split("\n")]
    rows = [
        [
            row.name,
            symbols(row.difference),
            str(row.updates or ""),
            row.perplexity,
            row.bleu,
            str(row.parameters_millions or ""),
        ]
        for row in TABLE_3
    ]
    assert rows == lines


def test_footnote_5_is_as_printed() -> None:
    """K80, K40, M40 and P100: 2.8, 3.7, 6.0 and 9.5 TFLOPS."""
    assert dict(PAPER_SUSTAINED_FLOP_S) == {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}


def test_table_4_is_as_printed() -> None:
    """Every parser with its training data and F1."""
    lines = [tuple(cell.strip() for cell in line.split("|")) for line in PRINTED_TABLE_4.strip("\n").split("\n")]
    assert [(row.name, row.training, row.f1) for row in TABLE_4] == lines


def test_the_parser_is_base_but_for_what_the_text_changes() -> None:
    """§6.3: 40 K sentences, and 17 M more; 4 layers, d_model 1024, 16 K or 32 K pieces, beam 21, α 0.3, input + 300."""
    for training, pieces, pairs in (
        ("WSJ only, discriminative", 16_000, 40_000),
        ("semi-supervised", 32_000, 17_040_000),
    ):
        printed, base = parser_experiment(training), experiment("en-de", "base")
        model = printed.model
        assert (printed.pairs, "17 M" in printed.corpus) == (pairs, pairs > 40_000)
        assert (printed.test_set, printed.test_sentences) == ("WSJ section 23", 2416)
        assert (model.n_layers, model.d_model, model.d_ff, model.n_heads) == (4, 1024, 2048, 8)
        assert model.d_k == model.d_v == model.d_model // model.n_heads
        assert model.vocabulary_size == printed.vocabulary_size == pieces
        assert (printed.beam_size, printed.length_penalty, printed.max_extra_tokens) == (21, 0.3, 300)
        same = ("updates", "averaged", "budget_tokens", "warmup_steps", "label_smoothing", "beta_1", "beta_2")
        assert all(getattr(printed, name) == getattr(base, name) for name in same)


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
    "schedule": "inverse_sqrt",
    "checkpoint_minutes": 10.0,
    "beam_size": 4,
    "length_penalty": 0.6,
    "max_extra_tokens": 50,
    "test_set": "newstest2014",
    "test_sentences": 3003,
}
"""§5.1 to §5.4 and §6.1: the settings shared by both models and both pairs."""


def test_models_are_as_printed() -> None:
    """Base and big have the sizes of Table 3."""
    for line, model in zip(PRINTED_MODELS.strip().split("\n"), (BASE, BIG), strict=True):
        sizes = {name: getattr(model, name) for name in MODEL_SYMBOLS}
        assert symbols(sizes) == " ".join(line.split()[1:])


def test_trainings_are_as_printed() -> None:
    """Every run has the paper's data, steps, duration and averaging, and the shared settings."""
    for line in PRINTED_TRAININGS.strip().split("\n"):
        pair, model = line.split()[:2]
        training = experiment(pair, model)
        steps = f"{training.updates} steps of {training.step_s} s"
        averaged = f"last {training.averaged} of every {training.checkpoint_updates}"
        cells = f"{training.pairs} pairs", f"{training.vocabulary_size} tokens", steps, training.duration, averaged
        assert list(cells) == [cell.strip() for cell in line.split("|")[1:]]
        assert {name: value for name, value in asdict(training).items() if name in OF_ALL} == OF_ALL


@pytest.mark.parametrize(("pair", "model", "dropout"), [("en-de", "big", 0.3), ("en-fr", "big", 0.1)])
def test_only_dropout_differs_between_the_big_models(pair: str, model: str, dropout: float) -> None:
    """§6.1 trains big with P_drop 0.1 on EN-FR; all else is like big's."""
    assert asdict(experiment(pair, model).model) == asdict(BIG) | {"dropout": dropout}


def test_settings_without_a_choice_are_the_paper_s() -> None:
    """The defaults of optimizer and search are those of §5.3, §5.4 and §6.1."""
    defaults = {**asdict(OptimizerConfig()), **asdict(SearchConfig())}
    assert defaults == {name: value for name, value in OF_ALL.items() if name in defaults}
    assert len(defaults) == 10


def test_rows_of_table_3_are_tested_on_newstest2013_without_averaging() -> None:
    """§6.2: the 3000 sentences of the development set, only the last checkpoint, and the row's label smoothing."""
    for name, smoothing, updates in (("base", 0.1, 100_000), ("D4", 0.2, 100_000), ("big", 0.1, 300_000)):
        row = variation_experiment(name)
        assert (row.test_set, row.test_sentences, row.averaged) == ("newstest2013", 3000, 1)
        assert (row.label_smoothing, row.updates) == (smoothing, updates)
        assert row.model == VARIATIONS[name].model(37_000)
    assert variation_experiment("a row of one's own") == variation_experiment("base")
