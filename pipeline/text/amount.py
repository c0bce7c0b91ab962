"""The size of a corpus, as far as its settings determine it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

TOKENS_A_PAIR = 59
"""Mean of WMT14's text (`pipeline.corpora.lengths`)."""


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

    @property
    def kept_bytes(self) -> float:
        """Approximate size of the text and its token ids; 0 if unknown."""
        return (self.text_bytes or 0) + (self.train_pairs or 0) * (8 + 2 * TOKENS_A_PAIR)
