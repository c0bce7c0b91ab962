"""The size of a corpus, as far as its settings determine it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Amount:
    """The size of a corpus before it is read; returned by `amount()` of its settings."""

    train_pairs: int | None = None
    """Number of training pairs, if known."""
    text_bytes: float | None = None
    """Approximate size of all training pairs as plain text, if known."""
    downloads: Mapping[str, int | None] = field(default_factory=dict)
    """Size of each download in bytes, or None if unknown, by path on the server (the same for all corpora that share
    it). Evaluation sets of unknown size, a few MB, are left out."""
