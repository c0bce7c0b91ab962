"""The paper's numbers, from paper.toml. Except for its claims (`workflows.claims`), no other module contains any.

"Attention Is All You Need", Vaswani et al. 2017, arXiv 1706.03762 v5; section marks are the paper's. The sustained
rates of footnote 5 are in `pipeline.evaluation.costs`, whose formula needs them. All other numbers that the project
shows come from files.

docs/paper.md lists inconsistencies of the paper, such as "three types of regularization" for two (§5.4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pipeline.complexity.settings import LayerType
from pipeline.settings import read_toml

PAIRS = ("en-de", "en-fr")
Kind = Literal["perplexity", "bleu"]
KINDS: tuple[Kind, ...] = ("perplexity", "bleu")
"""The metrics of a row of Table 3."""
KIND_NAMES: Mapping[Kind, str] = MappingProxyType({"perplexity": "perplexity", "bleu": "BLEU"})
TRANSFORMERS = MappingProxyType({"base": "Transformer (base)", "big": "Transformer (big)"})
"""The names of the Transformer's rows in Table 2, by model."""


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


@dataclass(frozen=True)
class PrintedRow:
    """A row of Table 2: tokenized BLEU on newstest2014 and training cost in FLOP, by language pair, if stated."""

    name: str
    bleu: Mapping[str, str] = field(default_factory=dict)
    cost_flop: Mapping[str, float] = field(default_factory=dict)
    footnote: str = ""


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


ParserTraining = Literal["WSJ only, discriminative", "semi-supervised", "multi-task", "generative"]
"""The training data or method of Table 4's parsers."""


@dataclass(frozen=True)
class Parser:
    """A row of Table 4: F1 on section 23 of the Wall Street Journal."""

    name: str
    training: ParserTraining
    f1: str
    """F1 in percent, with the printed digits."""


@dataclass(frozen=True)
class Facts:
    """What the paper states of an experiment beside its settings (§5.1, §5.2, §6.1), and the sizes of its test sets."""

    corpus: str
    pairs: int
    """The approximate number of sentence pairs in the training data."""
    unit: str
    """pairs or trees."""
    pieces: str
    """The vocabulary's units: joint byte pairs for EN-DE, word-pieces for EN-FR."""
    tokenisation: str
    longest: str
    """The longest training sentence."""
    step_s: float
    duration: str
    """The training time, as printed; empty if not stated."""
    test_text: str


TABLE_1: tuple[LayerComplexity, ...]
SEPARABLE: LayerComplexity
TABLE_2: tuple[PrintedRow, ...]
TABLE_3: tuple[Variation, ...]
VARIATIONS: Mapping[str, Variation]
"""The rows of Table 3 by name, in the same order."""
TABLE_4: tuple[Parser, ...]
MODEL_SYMBOLS: Mapping[str, str]
"""Headings of Table 3 by field of TransformerConfig."""
SYMBOLS: Mapping[str, str]
"""Headings of the fields that Table 3 varies."""
CORPUS: str
HARDWARE: str
VARIATION_TEST_SET: str
"""The development set of Table 3 (§6.2)."""
ONE_COST_NOTE: str
SAME_CHECKPOINT_BLEU: Sequence[float]
"""Moses BLEU and sacreBLEU."""
SAME_CHECKPOINT_SOURCE: str


@cache
def _printed() -> Mapping[str, Any]:
    """Returns the constants above by name, and the facts."""
    printed = read_toml(Path(__file__).with_suffix(".toml"))
    rows = {"TABLE_1": LayerComplexity, "TABLE_2": PrintedRow, "TABLE_3": Variation, "TABLE_4": Parser}
    tables = {name: tuple(row(**values) for values in printed[name]) for name, row in rows.items()}
    return {
        **printed,
        **tables,
        "SEPARABLE": LayerComplexity(**printed["SEPARABLE"]),
        "VARIATIONS": {row.name: row for row in tables["TABLE_3"]},
        "SYMBOLS": printed["MODEL_SYMBOLS"] | {"label_smoothing": "ε_ls"},
    }


if not TYPE_CHECKING:  # a type checker knows the names above, and no others

    def __getattr__(name: str) -> Any:
        """Reads the file when the first constant is used."""
        if name.isupper() and name in _printed():
            return _printed()[name]
        raise AttributeError(f"module {__name__} has no attribute {name}")


def symbols(difference: Mapping[str, Any]) -> str:
    """Formats {"n_heads": 1, "d_k": 512} as `h 1, d_k 512`; settings without a symbol in the paper keep their names."""
    return ", ".join(f"{_printed()['SYMBOLS'].get(name, name)} {value}" for name, value in difference.items())


def group(row: str) -> str:
    """Returns a row's group, A to E in Table 3: its name without the number. Base and big are groups of their own."""
    group = row.rstrip("0123456789")
    return row if group in TRANSFORMERS else group


def facts(*names: str) -> Facts:
    """Returns the facts of these names in paper.toml, e.g. a pair and a model; all others are base's on EN-DE."""
    stated = _printed()["FACTS"]
    return Facts(**{fact: value for name in ("en-de", *names) for fact, value in stated.get(name, {}).items()})
