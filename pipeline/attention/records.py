"""What is measured of attention heads: settings, artifacts and their figures, which load without torch.

    Heads(folder).load().heads[0].perplexity_change
    Relations(folder).load().relations[0].best_share

`pipeline.attention.heads` and `pipeline.attention.relations` compute them.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import Field

from pipeline.settings import Settings
from pipeline.store.artifact import JsonArtifact
from pipeline.store.records import Record

Kind = Literal["encoder", "decoder", "cross"]
"""The encoder's self-attention, the decoder's, and the decoder's attention to the encoder's output (§3.2.3)."""
KINDS: tuple[Kind, ...] = get_args(Kind)
RelationName = Literal["pronoun to antecedent", "verb to distant object"]


class HeadSettings(Settings):
    """How much text the heads are examined on."""

    sample_pairs: int = Field(80, ge=1)
    """Pairs of the dev set, spread evenly over it."""


class HeadRecord(Record):
    """Where one head looks and what it is worth: means over all queries of the sample."""

    kind: Kind
    layer: int
    """Counted from 1."""
    head: int
    """Counted from 1."""
    entropy: float
    """Bits; a head that looks at one token only has 0."""
    distance: float
    """Mean distance in tokens to what is attended to, ⟨begin⟩ and ⟨end⟩ left out; between the two languages, of the
    positions."""
    previous: float
    """Share of the attention on the position before the query's, which in the decoder is where it reads."""
    next: float
    same: float
    separator: float
    """Share on ⟨end⟩ of the source or ⟨begin⟩ of the target."""
    perplexity_without: float
    """Of the sample, with this head switched off."""
    perplexity_change: float


class HeadsRecord(Record):
    """`heads.json`: all heads, the encoder's first, then the decoder's and those between the two."""

    heads: tuple[HeadRecord, ...]
    perplexity: float
    """Of the sample, with all heads."""
    pairs: int
    tokens: int
    """Target tokens of the sample, END_ID counted."""


@dataclass(frozen=True)
class Heads(JsonArtifact[HeadsRecord]):
    """`heads.json`: where all heads look and what they are worth."""

    record_file = "heads.json"

    @property
    def summary(self) -> str:
        """The head that is missed most."""
        heads = self.load().heads
        worst = max(heads, key=lambda head: head.perplexity_change)
        return f"{len(heads)} heads; without {name_of(worst)} perplexity is {worst.perplexity_change:+.2f}"


def name_of(head: HeadRecord) -> str:
    """Returns what a head is called, e.g. `encoder layer 2 head 1`."""
    return f"{head.kind} layer {head.layer} head {head.head}"


class RelationSettings(Settings):
    """How many sentences are looked at."""

    cases: int = Field(300, ge=2)
    """Sentences with a pronoun and an antecedent, and as many pairs of verb and distant object."""


class HeadShare(Record):
    """How often one head attends most to the right word."""

    layer: int
    """Counted from 1."""
    head: int
    """Counted from 1."""
    share: float
    """Of all cases."""
    weight: float
    """The mean attention on the right word."""
    largest: float | None = None
    """The mean of the largest attention on any word, the right one or not; None in files of versions without it."""


class RelationRecord(Record):
    """One relation, and the heads of the encoder's self-attention, which could join its words."""

    relation: RelationName
    cases: int
    chance: float
    """The mean of one divided by the number of words that could be attended to."""
    offset: int
    """The best fixed offset in words, e.g. -3 for three words to the left."""
    offset_share: float
    """How often the right word is there."""
    best_layer: int
    """The head chosen, counted from 1."""
    best_head: int
    best_share: float
    """Of the cases that it was not chosen on; so is `offset_share`."""
    best_interval: tuple[float, float]
    """Of `best_share`, at 95 % confidence (Wilson)."""
    heads: tuple[HeadShare, ...]
    """All heads, on all cases."""


class RelationsRecord(Record):
    """`relations.json`."""

    relations: tuple[RelationRecord, ...]


@dataclass(frozen=True)
class Relations(JsonArtifact[RelationsRecord]):
    """`relations.json`: shares of pronouns and verbs that a head joins to the right word."""

    record_file = "relations.json"

    @property
    def summary(self) -> str:
        """The first relation in a few words."""
        first = self.load().relations[0]
        return (
            f"{first.relation}: {first.best_share:.0%} (layer {first.best_layer} head {first.best_head}), "
            f"best offset {first.offset_share:.0%}, chance {first.chance:.0%}"
        )
