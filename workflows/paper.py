"""The paper's numbers. Except for its claims (`workflows.claims`), no other module contains any.

"Attention Is All You Need", Vaswani et al. 2017, arXiv 1706.03762 v5; section marks are the paper's. The sustained
rates of footnote 5 are in `pipeline.evaluation.costs`, whose formula needs them. All other numbers that the project
shows come from files.

docs/paper.md lists inconsistencies of the paper, such as "three types of regularization" for two (§5.4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from model.config import BASE
from pipeline.complexity.settings import LayerType

PAIRS = ("en-de", "en-fr")
Kind = Literal["perplexity", "bleu"]
KINDS: tuple[Kind, ...] = ("perplexity", "bleu")
"""The metrics of a row of Table 3."""
KIND_NAMES: Mapping[Kind, str] = MappingProxyType({"perplexity": "perplexity", "bleu": "BLEU"})
MODEL_SYMBOLS = {
    "n_layers": "N",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "n_heads": "h",
    "d_k": "d_k",
    "d_v": "d_v",
    "dropout": "P_drop",
    "positions": "positions",
}
"""Headings of Table 3 by field of TransformerConfig."""
SYMBOLS = {**MODEL_SYMBOLS, "label_smoothing": "ε_ls"}
"""Headings of the fields that Table 3 varies."""


@dataclass(frozen=True)
class LayerComplexity:
    """A row of Table 1: n is the length, d the width, k the kernel size and r the neighbourhood size."""

    name: LayerType
    complexity: str
    """Per layer, as printed."""
    sequential: str
    """The minimum number of sequential operations."""
    path: str
    """The maximum path length between two positions."""
    exponent_n: int
    """The exponent of n in the complexity's leading term."""
    exponent_d: int


TABLE_1: tuple[LayerComplexity, ...] = (
    LayerComplexity("self-attention", "O(n²·d)", "O(1)", "O(1)", 2, 1),
    LayerComplexity("recurrent", "O(n·d²)", "O(n)", "O(n)", 1, 2),
    LayerComplexity("convolutional", "O(k·n·d²)", "O(1)", "O(log_k(n))", 1, 2),
    LayerComplexity("restricted self-attention", "O(r·n·d)", "O(1)", "O(n/r)", 1, 1),
)
"""The rows of Table 1 (§4), top to bottom; the paper writes "Self-Attention (restricted)"."""
SEPARABLE = LayerComplexity("separable convolution", "O(k·n·d + n·d²)", "", "", 1, 2)
"""The fifth layer type: its complexity is in the text of §4, not in Table 1."""


@dataclass(frozen=True)
class PrintedRow:
    """A row of Table 2: tokenized BLEU on newstest2014 and training cost in FLOP, by language pair, if stated."""

    name: str
    bleu: Mapping[str, str] = field(default_factory=dict)
    cost_flop: Mapping[str, float] = field(default_factory=dict)
    footnote: str = ""


ONE_COST_NOTE = (
    "The paper gives one training cost for base and one for big. Here each appears under both language pairs."
)
EN_FR_BIG_NOTE = "EN-FR (big): 41.8 is from Table 2 and the abstract. The text of §6.1 says 41.0."

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
"""The rows of Table 2 (§6.1), top to bottom. The Transformers' costs, stated once, are entered under both pairs."""
TRANSFORMERS = MappingProxyType({"base": "Transformer (base)", "big": "Transformer (big)"})
"""The names of the Transformer's rows, by model."""


HARDWARE = "8 × NVIDIA P100"
CORPUS = "WMT 2014"
VARIATION_TEST_SET, VARIATION_TEST_SENTENCES = "newstest2013", 3000
"""The development set of Table 3 (§6.2)."""


@dataclass(frozen=True)
class Facts:
    """What the paper states of an experiment beside its settings (§5.1, §5.2, §6.1)."""

    corpus: str = CORPUS
    pairs: int = 4_500_000
    """The approximate number of sentence pairs in the training data."""
    pieces: str = "pieces"
    """The vocabulary's units: joint byte pairs for EN-DE, word-pieces for EN-FR."""
    step_s: float = 0.4
    duration: str = "12 hours"
    """The training time, as printed."""
    test_text: str = "newstest2014, 3,003 sentences"


def facts(pair: str, model: str) -> Facts:
    """Returns the facts of one cell of Table 2: `pair` "en-de" or "en-fr", `model` "base" or "big"."""
    of_pair = Facts(pairs=36_000_000, pieces="word-pieces") if pair == "en-fr" else Facts()
    return replace(of_pair, step_s=1.0, duration="3.5 days") if model == "big" else of_pair


def symbols(difference: Mapping[str, Any]) -> str:
    """Formats {"n_heads": 1, "d_k": 512} as `h 1, d_k 512`; settings without a symbol in the paper keep their names."""
    return ", ".join(f"{SYMBOLS.get(name, name)} {value}" for name, value in difference.items())


def group(row: str) -> str:
    """Returns a row's group, A to E in Table 3: its name without the number. Base and big are groups of their own."""
    group = row.rstrip("0123456789")
    return row if group in TRANSFORMERS else group


@dataclass(frozen=True)
class Variation:
    """A row of Table 3: base with one difference, on EN-DE newstest2013, beam size 4, without checkpoint averaging."""

    name: str
    difference: Mapping[str, Any]
    """The differences from base: fields of TransformerConfig and `label_smoothing`."""
    perplexity: str
    """The perplexity per word-piece, with the printed digits."""
    bleu: str
    parameters_millions: int | None = None
    updates: int | None = None
    """The number of steps, stated only for base and big."""


TABLE_3: tuple[Variation, ...] = (
    Variation("base", {}, "4.92", "25.8", 65, updates=100_000),
    Variation("A1", {"n_heads": 1, "d_k": 512, "d_v": 512}, "5.29", "24.9"),
    Variation("A2", {"n_heads": 4, "d_k": 128, "d_v": 128}, "5.00", "25.5"),
    Variation("A3", {"n_heads": 16, "d_k": 32, "d_v": 32}, "4.91", "25.8"),
    Variation("A4", {"n_heads": 32, "d_k": 16, "d_v": 16}, "5.01", "25.4"),
    Variation("B1", {"d_k": 16}, "5.16", "25.1", 58),
    Variation("B2", {"d_k": 32}, "5.01", "25.4", 60),
    Variation("C1", {"n_layers": 2}, "6.11", "23.7", 36),
    Variation("C2", {"n_layers": 4}, "5.19", "25.3", 50),
    Variation("C3", {"n_layers": 8}, "4.88", "25.5", 80),
    Variation("C4", {"d_model": 256, "d_k": 32, "d_v": 32}, "5.75", "24.5", 28),
    Variation("C5", {"d_model": 1024, "d_k": 128, "d_v": 128}, "4.66", "26.0", 168),
    Variation("C6", {"d_ff": 1024}, "5.12", "25.4", 53),
    Variation("C7", {"d_ff": 4096}, "4.75", "26.2", 90),
    Variation("D1", {"dropout": 0.0}, "5.77", "24.6"),
    Variation("D2", {"dropout": 0.2}, "4.95", "25.5"),
    Variation("D3", {"label_smoothing": 0.0}, "4.67", "25.3"),
    Variation("D4", {"label_smoothing": 0.2}, "5.47", "25.7"),
    Variation("E", {"positions": "learned"}, "4.92", "25.7"),
    Variation(
        "big", {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3}, "4.33", "26.4", 213, updates=300_000
    ),
)
"""The rows of Table 3 (§6.2), top to bottom."""
VARIATIONS = MappingProxyType({variation.name: variation for variation in TABLE_3})
"""The rows by name, in the same order."""


def variation_facts(row: str) -> Facts:
    """Returns the facts of a row of Table 3."""
    return replace(facts("en-de", row), test_text=f"{VARIATION_TEST_SET}, {VARIATION_TEST_SENTENCES:,} sentences")


SAME_CHECKPOINT_BLEU = (29.02, 27.52)
"""Paper BLEU and sacreBLEU of the same base checkpoint on EN-DE. Not from the paper."""
SAME_CHECKPOINT_SOURCE = (
    "the authors' base, EN-DE, after 3.8 M updates, as scored by a user: github.com/tensorflow/tensor2tensor/issues/317"
)


ParserTraining = Literal["WSJ only, discriminative", "semi-supervised", "multi-task", "generative"]
"""The training data or method of Table 4's parsers."""


@dataclass(frozen=True)
class Parser:
    """A row of Table 4: F1 on section 23 of the Wall Street Journal."""

    name: str
    training: ParserTraining
    f1: str
    """F1 in percent, with the printed digits."""


TABLE_4: tuple[Parser, ...] = (
    Parser("Vinyals & Kaiser et al. (2014)", "WSJ only, discriminative", "88.3"),
    Parser("Petrov et al. (2006)", "WSJ only, discriminative", "90.4"),
    Parser("Zhu et al. (2013)", "WSJ only, discriminative", "90.4"),
    Parser("Dyer et al. (2016)", "WSJ only, discriminative", "91.7"),
    Parser("Transformer (4 layers)", "WSJ only, discriminative", "91.3"),
    Parser("Zhu et al. (2013)", "semi-supervised", "91.3"),
    Parser("Huang & Harper (2009)", "semi-supervised", "91.3"),
    Parser("McClosky et al. (2006)", "semi-supervised", "92.1"),
    Parser("Vinyals & Kaiser et al. (2014)", "semi-supervised", "92.1"),
    Parser("Transformer (4 layers)", "semi-supervised", "92.7"),
    Parser("Luong et al. (2015)", "multi-task", "93.0"),
    Parser("Dyer et al. (2016)", "generative", "93.3"),
)
"""The rows of Table 4 (§6.3), top to bottom."""

PARSER_MODEL = replace(BASE, n_layers=4, d_model=1024, d_k=128, d_v=128)
"""The Transformer of Table 4. §6.3 states 4 layers and d_model = 1024. All else is like base: d_ff is 2048, h is 8, and
d_k = d_v = d_model / h (§3.2.2), like in row C5 of Table 3."""


def parser_facts(*, is_semi_supervised: bool) -> Facts:
    """Returns the facts of a Transformer row of Table 4 (§6.3), whose training time is not stated."""
    corpus, pairs = ("WSJ and 17 M silver trees", 17_040_000) if is_semi_supervised else ("WSJ", 40_000)
    return Facts(corpus, pairs, duration="", test_text="WSJ section 23")
