"""The paper's numbers, and the only module of this project in which figures are typed in.

"Attention Is All You Need", Vaswani et al. 2017, arXiv 1706.03762 v5; section marks are the paper's. The sustained
rates of footnote 5 stand in `pipeline.costs`, whose formula needs them. All else that is printed comes from a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from model.config import BASE, BIG, TransformerConfig

Pair = Literal["en-de", "en-fr"]
PAIRS: tuple[Pair, ...] = ("en-de", "en-fr")
ModelName = Literal["base", "big"]


@dataclass(frozen=True)
class PrintedRow:
    """A row of Table 2: tokenized BLEU on newstest2014 and training cost in FLOP, where printed, by pair."""

    name: str
    bleu: Mapping[str, str] = field(default_factory=dict)
    cost_flop: Mapping[str, float] = field(default_factory=dict)
    footnote: str = ""


EN_FR_BIG_NOTE = "EN-FR (big): Table 2 and the abstract print 41.8; the text of §6.1 says 41.0."

TABLE_2: tuple[PrintedRow, ...] = (
    PrintedRow("ByteNet", {"en-de": "23.75"}),
    PrintedRow("Deep-Att + PosUnk", {"en-fr": "39.2"}, {"en-fr": 1.0e20}),
    PrintedRow("GNMT + RL", {"en-de": "24.6", "en-fr": "39.92"}, {"en-de": 2.3e19, "en-fr": 1.4e20}),
    PrintedRow("ConvS2S", {"en-de": "25.16", "en-fr": "40.46"}, {"en-de": 9.6e18, "en-fr": 1.5e20}),
    PrintedRow("MoE", {"en-de": "26.03", "en-fr": "40.56"}, {"en-de": 2.0e19, "en-fr": 1.2e20}),
    PrintedRow("Deep-Att + PosUnk ensemble", {"en-fr": "40.4"}, {"en-fr": 8.0e20}),
    PrintedRow("GNMT + RL ensemble", {"en-de": "26.30", "en-fr": "41.16"}, {"en-de": 1.8e20, "en-fr": 1.1e21}),
    PrintedRow("ConvS2S ensemble", {"en-de": "26.36", "en-fr": "41.29"}, {"en-de": 7.7e19, "en-fr": 1.2e21}),
    PrintedRow("Transformer (base)", {"en-de": "27.3", "en-fr": "38.1"}, {"en-de": 3.3e18, "en-fr": 3.3e18}),
    PrintedRow(
        "Transformer (big)",
        {"en-de": "28.4", "en-fr": "41.8"},
        {"en-de": 2.3e19, "en-fr": 2.3e19},
        footnote=EN_FR_BIG_NOTE,
    ),
)
"""Table 2 (§6.1), top to bottom."""


@dataclass(frozen=True)
class Experiment:
    """How the paper trained and tested one model on one pair (§5, §6.1)."""

    model: TransformerConfig
    corpus: str
    pairs: int
    """Sentence pairs of the training data (§5.1), about."""
    vocabulary_size: int
    updates: int
    averaged: int
    """Checkpoints averaged (§6.1)."""
    step_s: float
    duration: str
    """Of the whole training, as printed (§5.2)."""
    budget_tokens: int = 25_000
    """Source tokens, and target tokens, of one update (§5.1), about."""
    warmup_steps: int = 4000
    learning_rate_scale: float = 1.0
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    label_smoothing: float = 0.1
    hardware: str = "8 × NVIDIA P100"
    checkpoint_minutes: float = 10.0
    beam_size: int = 4
    length_penalty: float = 0.6
    max_extra_tokens: int = 50
    test_set: str = "newstest2014"
    test_sentences: int = 3003


def experiment(pair: str, model: str) -> Experiment:
    """The paper's experiment behind one cell of Table 2: `pair` "en-de" or "en-fr", `model` "base" or "big"."""
    # §6.1: the big EN-FR model was trained with P_drop 0.1 instead of 0.3.
    big = TransformerConfig(**{**BIG.__dict__, "dropout": 0.1}) if pair == "en-fr" else BIG
    pairs, vocabulary_size = (36_000_000, 32_000) if pair == "en-fr" else (4_500_000, 37_000)
    if model == "big":
        return Experiment(big, "WMT 2014", pairs, vocabulary_size, 300_000, 20, 1.0, "3.5 days")
    return Experiment(BASE, "WMT 2014", pairs, vocabulary_size, 100_000, 5, 0.4, "12 hours")


SEED_SPREAD_BLEU = 0.3
"""Trainings to a plateau differ by this much, up or down, from seed to seed."""
SAME_CHECKPOINT_BLEU = (29.0, 27.5)
"""Paper BLEU and sacreBLEU that were measured on one and the same base checkpoint, EN-DE."""
