"""The profiles of Table 4 (§6.3): generated trees, a small treebank, and the paper's Wall Street Journal.

    load_parsing_profile(treebank=Path("wsj"), silver=[Path("bllip.mrg")])

`corpora` maps rows of the table to their trees: `supervised` and, with silver trees, `semi-supervised`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from model.config import BASE, OptimizerConfig
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.errors import UserError
from pipeline.parsing.layouts import SECTION_FOLDERS, SECTIONS
from pipeline.parsing.recombination import RecombinationSettings
from pipeline.parsing.treebank import TreebankSettings
from pipeline.settings import (
    PARSING,
    AveragingSettings,
    BeamSize,
    CleaningSettings,
    DecodingSettings,
    EncodingSettings,
    Settings,
    TrainingSettings,
    VocabularySettings,
)
from workflows.paper import PARSER_MODEL
from workflows.profiles.changes import named_profile, read_config
from workflows.profiles.profile import GENERATED, Profile, Recipe, configure, describe, finished
from workflows.profiles.translation import sized

SUPERVISED, SEMI_SUPERVISED = "supervised", "semi-supervised"
EMBEDDED_NAME, TREEBANK_NAME, WSJ_NAME = "embedded", "treebank", "wsj"
ALL_TREES = CleaningSettings(max_words=1000, max_ratio=30)
"""No pair is dropped for its length or length ratio: a tree has several symbols per word."""


class Choice(Settings):
    """Candidates for the choice on the dev set (§6.3: "the dropout, both attention and residual [...], learning rates
    and beam size")."""

    dropouts: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field((0.1, 0.2, 0.3), min_length=1)
    """Residual dropout: applied to the output of each sub-layer."""
    attention_dropouts: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field((0.0,), min_length=1)
    learning_rate_scales: tuple[Annotated[float, Field(gt=0, le=1000)], ...] = Field((0.5, 1.0), min_length=1)
    """Multiples of the recipe's learning rate."""
    beam_sizes: tuple[BeamSize, ...] = Field((1, 4, 21), min_length=1)
    """Tried on the best run. Runs are compared with the beam size of `decoding`."""


class ParsingProfile(Profile):
    """All settings of Table 4; the only recipe is `parser`."""

    # Narrower than the base class: only trees can be parsed.
    corpora: dict[str, EmbeddedSettings | TreebankSettings]  # type: ignore[assignment]
    # Unlike the base class: a parser's run is chosen, too, but no length penalty (§6.3).
    choice: Choice = Choice()  # type: ignore[assignment]
    cleaning: CleaningSettings = ALL_TREES
    decoding: DecodingSettings = PARSING

    @model_validator(mode="after")
    def _texts_are_of_their_pairs(self) -> Self:
        for name, corpus in self.corpora.items():
            if isinstance(corpus, EmbeddedSettings) and corpus.target != "trees":
                raise ValueError(f"corpora.{name}.target is {corpus.target!r}; a parser writes trees")
        return self


def _small_parser(dropout: float, averaging: AveragingSettings, **training: Any) -> dict[str, Recipe]:
    """Returns the recipe of a parser of two layers, several of which train at once on a few cores."""
    model = sized(BASE, 2, 128, 512, 4, dropout)
    settings = TrainingSettings(model=model, dtype="float32", workers=1, gpu_share=0.25, **training)
    return {"parser": Recipe(training=settings, averaging=averaging)}


EMBEDDED_TREES = ParsingProfile(
    name=EMBEDDED_NAME,
    data=f"{GENERATED} trees",
    corpora={SUPERVISED: EmbeddedSettings(target="trees", train_pairs=48_000)},
    vocabulary=VocabularySettings(size=1200, character_coverage=1, byte_fallback=False),
    recipes=_small_parser(
        dropout=0.0,
        averaging=AveragingSettings(),
        optimizer=OptimizerConfig(warmup_steps=300, learning_rate_scale=0.2),
        updates=2600,
        budget_tokens=800,
        checkpoint_updates=100,
        validation_updates=260,
        log_updates=10,
    ),
    decoding=PARSING.model_copy(update={"beam_size": 4}),
    choice=Choice(dropouts=(0.0, 0.1), learning_rate_scales=(1.0,), beam_sizes=(1, 4)),
)
"""Generated trees: minutes on two cores, with two parsers training at once."""


def treebank_profile(treebank: Path, silver: Sequence[Path]) -> ParsingProfile:
    """Returns the profile for a small treebank, such as NLTK's sample of the Wall Street Journal.

    It adds tags and recombined trees: from a few thousand trees, no parser learned to track its position in the
    sentence (docs/log.md, "Table 4 on a small treebank").
    """
    data = f"trees of {treebank.resolve().name}"
    learnable = {"write_tags": True, "recombination": RecombinationSettings(trees=150_000)}
    return ParsingProfile(
        name=TREEBANK_NAME,
        data=data,
        corpora=_corpora(treebank, silver, **learnable),
        vocabulary=VocabularySettings(size=3000, character_coverage=1, byte_fallback=False),
        recipes=_small_parser(
            dropout=0.1,
            averaging=AveragingSettings(last=3),
            optimizer=OptimizerConfig(warmup_steps=500, learning_rate_scale=0.4),
            updates=10_000,
            budget_tokens=1500,
            checkpoint_updates=1000,
            keep_checkpoints=10,
            validation_updates=500,
            log_updates=50,
        ),
        decoding=PARSING.model_copy(update={"beam_size": 4}),
        choice=Choice(dropouts=(0.0, 0.1), learning_rate_scales=(1.0,), beam_sizes=(1, 4, 21)),
        pairs={SEMI_SUPERVISED: {"data": f"{data} and silver trees"}},
    )


def wsj_profile(treebank: Path, silver: Sequence[Path]) -> ParsingProfile:
    """Returns the paper's setup (§6.3), with 16 K pieces, or 32 K with silver trees.

    The paper states neither the number of updates nor the dropouts, learning rates and beam sizes it tried. The updates
    and the averaging here are base's, from which "all other parameters remained unchanged" (workflows.paper). The grid
    is ours; its attention dropouts are 0 and tensor2tensor's first value for this treebank, 0.2 (June 2017).
    """
    return ParsingProfile(
        name=WSJ_NAME,
        data="WSJ",
        corpora=_corpora(treebank, silver),
        vocabulary=VocabularySettings(size=16_000),
        encoding=EncodingSettings(max_tokens=512),
        recipes={"parser": Recipe(training=TrainingSettings(model=PARSER_MODEL), averaging=AveragingSettings())},
        choice=Choice(attention_dropouts=(0.0, 0.2)),
        pairs={SEMI_SUPERVISED: {"data": "WSJ and silver trees", "vocabulary": {"size": 32_000}}},
    )


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
        profile = named_profile({EMBEDDED_NAME: EMBEDDED_TREES}, name or EMBEDDED_NAME)
    else:
        if name == EMBEDDED_NAME:
            raise UserError("--treebank does not apply to profile embedded: its trees are generated; leave one out")
        name = name or (WSJ_NAME if is_wsj(treebank) else TREEBANK_NAME)
        profiles = {TREEBANK_NAME: treebank_profile(treebank, silver), WSJ_NAME: wsj_profile(treebank, silver)}
        profile = named_profile(profiles, name)
    described = describe(profile)
    configure(described, config)
    return finished(profile, described, overrides)


def is_wsj(treebank: Path) -> bool:
    """Whether a folder has all sections of the Wall Street Journal that the paper trains and tests on."""
    sections = [section for names in SECTIONS.values() for section in names]
    return any(all((treebank / below / name).is_dir() for name in sections) for below in SECTION_FOLDERS)


def _corpora(treebank: Path, silver: Sequence[Path], **settings: Any) -> dict[str, Any]:
    corpora = {SUPERVISED: TreebankSettings(treebank=treebank, **settings)}
    if silver:
        corpora[SEMI_SUPERVISED] = TreebankSettings(treebank=treebank, silver=tuple(silver), **settings)
    return corpora
