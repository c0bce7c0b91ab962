"""Settings, artifacts and records of attention-head measurements, importable without torch.

    Heads(folder).load().heads[0].perplexity_change
    Relations(folder).load().relations[0].best_share

`pipeline.attention.heads` and `pipeline.attention.relations` compute them.
"""

from typing import Literal, get_args

from pydantic import Field

from pipeline.settings import Settings
from pipeline.store.artifact import JsonArtifact
from pipeline.store.records import Record

Kind = Literal["encoder", "decoder", "cross"]
"""Encoder self-attention, decoder self-attention, or cross-attention (§3.2.3)."""
KINDS: tuple[Kind, ...] = get_args(Kind)
RelationName = Literal["pronoun to antecedent", "verb to distant object"]


class HeadSettings(Settings):
    """The sample of text on which heads are examined."""

    sample_pairs: int = Field(80, ge=1)
    """Dev pairs, spread evenly."""


class HeadRecord(Record):
    """What one head attends to and its effect on perplexity: means over all queries of the sample."""

    kind: Kind
    layer: int
    """From 1."""
    head: int
    """From 1."""
    entropy: float
    """In bits; 0 for a head that attends to a single token."""
    distance: float
    """Mean distance in tokens to the attended tokens, excluding ⟨begin⟩ and ⟨end⟩; in cross-attention, between
    positions."""
    previous: float
    """Share of attention on the position before the query's; in the decoder, that is the token it reads."""
    next: float
    same: float
    separator: float
    """Share on the source's ⟨end⟩ or the target's ⟨begin⟩."""
    perplexity_without: float
    """Perplexity of the sample with this head switched off."""
    perplexity_change: float


class HeadsRecord(Record):
    """`heads.json`: all heads: encoder, decoder, cross-attention."""

    heads: tuple[HeadRecord, ...]
    perplexity: float
    """Perplexity of the sample with all heads."""
    pairs: int
    tokens: int
    """Target tokens of the sample, END_ID included."""


class Heads(JsonArtifact[HeadsRecord]):
    """`heads.json`: what all heads attend to and their effect on perplexity."""

    record_file = "heads.json"

    @property
    def summary(self) -> str:
        """The head with the largest effect on perplexity."""
        heads = self.load().heads
        worst = max(heads, key=lambda head: head.perplexity_change)
        return f"{len(heads)} heads; without {name_of(worst)} perplexity is {worst.perplexity_change:+.2f}"


def name_of(head: HeadRecord) -> str:
    """Returns a head's name, e.g. `encoder layer 2 head 1`."""
    return f"{head.kind} layer {head.layer} head {head.head}"


class RelationSettings(Settings):
    """The number of cases per relation."""

    cases: int = Field(300, ge=2)
    """Sentences with a pronoun and its antecedent, and as many pairs of verb and distant object."""


class HeadShare(Record):
    """How often one head attends most to the related word."""

    layer: int
    """From 1."""
    head: int
    """From 1."""
    share: float
    """Share of all cases."""
    weight: float
    """Mean attention on the related word."""
    largest: float | None = None
    """Mean of the largest attention on any word; None if written by an older version."""


class RelationRecord(Record):
    """One relation and all heads of encoder self-attention."""

    relation: RelationName
    cases: int
    chance: float
    """Chance level: the mean of 1 / (number of words to attend to)."""
    offset: int
    """The best fixed offset in words, e.g. -3 for three words to the left."""
    offset_share: float
    """Share of cases in which the related word is there."""
    best_layer: int
    """The best head, from 1."""
    best_head: int
    best_share: float
    """Share on held-out cases, like `offset_share`."""
    best_interval: tuple[float, float]
    """95% confidence interval of `best_share` (Wilson)."""
    heads: tuple[HeadShare, ...]
    """All heads on all cases."""


class RelationsRecord(Record):
    """`relations.json`."""

    relations: tuple[RelationRecord, ...]


class Relations(JsonArtifact[RelationsRecord]):
    """`relations.json`: how often a head connects pronouns and verbs to the related word."""

    record_file = "relations.json"

    @property
    def summary(self) -> str:
        """The first relation in a few words."""
        first = self.load().relations[0]
        return (
            f"{first.relation}: {first.best_share:.0%} (layer {first.best_layer} head {first.best_head}), "
            f"best offset {first.offset_share:.0%}, chance {first.chance:.0%}"
        )
