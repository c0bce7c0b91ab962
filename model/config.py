"""The shape of a model (paper §3.1, Table 3) and its optimizer (§5.3). Defaults are the paper's base model."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

PAD_ID = 0
"""Token id of padding throughout the project."""
UNKNOWN_ID = 1
BEGIN_ID = 2
"""The first decoder input: the target is shifted right by one (§3.1)."""
END_ID = 3
"""The last token of every source and target sentence."""
MAX_SIZE = 1 << 20
"""Larger than any Transformer's dimension."""


@dataclass(frozen=True)
class TransformerConfig:
    """A model's dimensions.

    `d_k` and `d_v` need not equal `d_model / n_heads` (Table 3, rows B, vary `d_k` only). Recurrent and convolutional
    models ignore `n_heads`, `d_k` and `d_v`. Raises ValueError if a dimension is not between 1 and `MAX_SIZE`,
    `d_model` is odd, a dropout is outside [0, 1), or the architecture does not have an option.
    """

    vocabulary_size: int = 37_000
    n_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    n_heads: int = 8
    d_k: int = 64
    d_v: int = 64
    dropout: float = 0.1
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Learned positions share one table between encoder and decoder, with standard deviation d_model^-0.5. The paper
    specifies neither (§3.5; Table 3, row E)."""
    max_positions: int = 1024
    """Size of the learned position table. Sinusoids have no limit."""
    attention_window: int = 0
    """Neighbourhood size r of encoder self-attention (§4); 0: unrestricted."""
    attention_dropout: float = 0.0
    """Dropout of attention weights: none in §5.4; §6.3 chose a value for parsing without stating it."""
    architecture: Literal["transformer", "recurrent", "convolutional"] = "transformer"
    """Recurrent and convolutional are the paper's competitors (Table 2)."""
    attention: Literal["scaled_dot_product", "dot_product", "additive"] = "scaled_dot_product"
    """The compatibility function of queries and keys (§3.2.1)."""

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "max_positions"):
            if not 1 <= getattr(self, name) <= MAX_SIZE:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1 and at most {MAX_SIZE}")
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}; sinusoids come in pairs, so it must be even")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if not 0 <= self.attention_window <= MAX_SIZE:
            raise ValueError(
                f"attention_window is {self.attention_window}; it must be 0 for no limit, or at most {MAX_SIZE}"
            )
        for field in fields(self):
            if (known := get_args(field.type)) and (value := getattr(self, field.name)) not in known:
                raise ValueError(f"{field.name} is {value!r}; it must be one of {', '.join(map(repr, known))}")
        if self.attention_window and self.attention != "scaled_dot_product":
            raise ValueError(f"attention_window needs attention 'scaled_dot_product', but it is {self.attention!r}")
        self._check_architecture()

    def _check_architecture(self) -> None:
        if self.architecture == "transformer":
            return
        name = f"a {self.architecture} model"
        if self.attention_window or self.attention_dropout:
            raise ValueError(f"{name} has no attention_window and no attention_dropout; leave both at 0")
        if self.attention != "scaled_dot_product":
            raise ValueError(f"{name} has no attention {self.attention!r}; leave it at 'scaled_dot_product'")
        if self.architecture == "convolutional" and self.positions != "learned":
            raise ValueError(f"positions is {self.positions!r}; {name} needs 'learned'")
        if self.architecture == "recurrent" and self.positions == "learned":
            raise ValueError(f"positions is 'learned', but {name} has no positions; leave it at 'sinusoidal'")
        if self.architecture == "recurrent" and self.n_layers < 2:
            raise ValueError(f"n_layers is {self.n_layers}; {name} needs at least 2, one to attend for the other")
        if self.architecture == "recurrent" and self.d_ff % 2:
            raise ValueError(f"d_ff is {self.d_ff}; {name} reads the source in two directions, so it must be even")


BASE = TransformerConfig()
"""The paper's base model (§3)."""
BIG = TransformerConfig(d_model=1024, d_ff=4096, n_heads=16, dropout=0.3)
"""The paper's big model (Table 3, last row)."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam, its schedule and label smoothing; defaults: the paper's (§5.3, §5.4). Raises ValueError if out of range."""

    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    warmup_steps: int = 4000
    learning_rate_scale: float = 1.0
    """Factor of the learning rate of equation 3."""
    label_smoothing: float = 0.1

    def __post_init__(self) -> None:
        for name in ("beta_1", "beta_2", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0 and below 1")
        for name in ("epsilon", "learning_rate_scale"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0 and finite")
        if not 1 <= self.warmup_steps <= 10**9:
            raise ValueError(f"warmup_steps is {self.warmup_steps}; it must be at least 1 and at most {10**9}")


@dataclass(frozen=True)
class SearchConfig:
    """Beam search; defaults are the paper's (§6.1)."""

    beam_size: int = 4
    length_penalty: float = 0.6
    """α of ((5 + |y|) / 6)^α (Wu et al. 2016)."""
    max_extra_tokens: int = 50
    """The output may be this many tokens longer than the input."""
