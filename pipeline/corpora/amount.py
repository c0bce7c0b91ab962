"""How much a corpus is, as far as that is known before anything of it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Amount:
    """What each kind of corpus tells of itself by its settings alone: `amount(settings)` in its module."""

    train_pairs: int | None = None
    """None: not known before the text is read."""
    text_bytes: float | None = None
    """Of both sides of the training pairs as plain text, about; None as for the pairs."""
    downloads: Mapping[str, int | None] = field(default_factory=dict)
    """Bytes of what is downloaded, by its place below the server, alike in all corpora that need it; None: not known.
    Evaluation sets, a few MB, are not counted where their size is not in the settings."""
    about: frozenset[str] = frozenset()
    """Those of the downloads whose size is no more than an estimate."""
