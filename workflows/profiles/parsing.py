"""The profiles of Table 4 (§6.3): generated trees, a small treebank, and the paper's Wall Street Journal.

    load_parsing_profile(treebank=Path("wsj"), silver=[Path("bllip.mrg")])

`corpora` maps rows of the table to their trees: `supervised` and, with silver trees, `semi-supervised`.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.errors import UserError
from pipeline.parsing.splits import SECTION_FOLDERS, SECTIONS
from pipeline.parsing.treebank import TreebankSettings
from pipeline.settings import PARSING, BeamSize, CleaningSettings, Count, DecodingSettings, Settings
from workflows.profiles.changes import known, read_config, read_profile
from workflows.profiles.profile import Profile, configure, describe, finished

SUPERVISED, SEMI_SUPERVISED = "supervised", "semi-supervised"
EMBEDDED_NAME, TREEBANK_NAME, WSJ_NAME = "embedded", "treebank", "wsj"
Rate = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1000)], Count | None],
    BeforeValidator(lambda rate: rate if isinstance(rate, list | tuple) else (rate, None)),
]


class Choice(Settings):
    """Candidates for the choice on the dev set (§6.3: "the dropout, both attention and residual [...], learning rates
    and beam size")."""

    dropouts: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field((0.1, 0.2, 0.3), min_length=1)
    """Residual dropout: applied to the output of each sub-layer."""
    attention_dropouts: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field((0.0,), min_length=1)
    learning_rate_scales: tuple[Rate, ...] = Field(((0.5, None), (1.0, None)), min_length=1)
    """Multiples of the recipe's learning rate, written 0.5, or [5.0, 16_000] with a warm-up of its own."""
    beam_sizes: tuple[BeamSize, ...] = Field((1, 4, 21), min_length=1)
    """Tried on the best run. Runs are compared with the beam size of `decoding`."""


class ParsingProfile(Profile):
    """All settings of Table 4; the only recipe is `parser`."""

    FIXED: ClassVar[set[str]] = {*Profile.FIXED, "grid"}
    # Narrower than the base class: only trees can be parsed.
    corpora: dict[str, EmbeddedSettings | TreebankSettings]  # type: ignore[assignment]
    # Unlike the base class: a parser's run is chosen, too, but no length penalty (§6.3).
    choice: Choice = Choice()  # type: ignore[assignment]
    cleaning: CleaningSettings = CleaningSettings(max_words=1000, max_ratio=30)
    """No pair is dropped for its length or length ratio: a tree has several symbols per word."""
    decoding: DecodingSettings = PARSING

    @model_validator(mode="after")
    def _texts_are_of_their_pairs(self) -> Self:
        for name, corpus in self.corpora.items():
            if isinstance(corpus, EmbeddedSettings) and corpus.target != "trees":
                raise ValueError(f"corpora.{name}.target is {corpus.target!r}; a parser writes trees")
        return self


def treebank_profile(name: str, treebank: Path, silver: Sequence[Path]) -> ParsingProfile:
    """Returns the profile treebank or wsj for a treebank, with a row for silver trees if there are any."""
    settings: dict[str, Any] = {"data": f"trees of {treebank.resolve().name}", "corpora": {}, "pairs": {}}
    settings |= read_profile(name)
    text = {"treebank": treebank, **settings["corpora"].get(SUPERVISED, {})}
    settings["corpora"] = {SUPERVISED: text} | ({SEMI_SUPERVISED: {**text, "silver": silver}} if silver else {})
    with_silver = {"data": f"{settings['data']} and silver trees", **settings["pairs"].get(SEMI_SUPERVISED, {})}
    return ParsingProfile(**settings | {"name": name, "pairs": {SEMI_SUPERVISED: with_silver}})


wsj_profile = partial(treebank_profile, WSJ_NAME)
"""Returns the paper's setup (§6.3)."""


def load_parsing_profile(
    name: str | None = None,
    *,
    treebank: Path | None = None,
    silver: Sequence[Path] = (),
    config: Path | None = None,
    overrides: Sequence[str] = (),
) -> ParsingProfile:
    """Loads a profile of Table 4 and applies `config` (TOML) and `overrides` ("key=value").

    The default is wsj for a treebank with sections 02 to 21, treebank for any other, and embedded without one. Raises
    UserError for an unknown profile or key, an invalid value, or a profile that does not fit the treebank.
    """
    name = name or read_config(config).get("profile")
    if treebank is None:
        if silver:
            raise UserError("--silver adds trees to a treebank; name its folder with --treebank")
        if name in (TREEBANK_NAME, WSJ_NAME):
            raise UserError(f"profile {name} needs trees; name their folder with --treebank")
        name = known(name or EMBEDDED_NAME, [EMBEDDED_NAME])
        profile = ParsingProfile(name=name, **read_profile("embedded-trees"))
    else:
        if name == EMBEDDED_NAME:
            raise UserError("--treebank does not apply to profile embedded: its trees are generated; leave one out")
        name = name or (WSJ_NAME if is_wsj(treebank) else TREEBANK_NAME)
        profile = treebank_profile(known(name, [TREEBANK_NAME, WSJ_NAME]), treebank, silver)
    described = describe(profile)
    configure(described, config)
    return finished(profile, described, overrides)


def is_wsj(treebank: Path) -> bool:
    """Whether a folder has all sections of the Wall Street Journal that the paper trains and tests on."""
    sections = [section for names in SECTIONS.values() for section in names]
    return any(all((treebank / below / name).is_dir() for name in sections) for below in SECTION_FOLDERS)
