"""The size of a corpus, as far as it is known before any of it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Amount:
    """The size of a corpus as its settings imply it, returned by `amount(settings)` of each corpus module."""

    train_pairs: int | None = None
    """Training pairs; None if the number is not known before the text is read."""
    text_bytes: float | None = None
    """Approximate size of both sides of the training pairs as plain text, or None."""
    downloads: Mapping[str, int | None] = field(default_factory=dict)
    """Bytes of each download, or None if not known, keyed by its path on the server, which is the same for all corpora
    that need it. Evaluation sets, a few MB, are not counted if their size is not in the settings."""
