"""Base classes for the profiles of Tables 2 to 4, with the settings of text, training and evaluation."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, model_validator

from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.corpora.files import FilesSettings
from pipeline.corpora.multi30k import Multi30kSettings
from pipeline.corpora.wmt14 import Wmt14Settings
from pipeline.errors import UserError
from pipeline.settings import (
    AveragingSettings,
    BeamSize,
    CleaningSettings,
    DecodingSettings,
    EncodingSettings,
    LengthPenalty,
    Settings,
    TrainingSettings,
    VocabularySettings,
    not_in_fingerprint,
)
from workflows.profiles.changes import BaseProfile, checked, merge, read_config, read_override


class Recipe(Settings):
    """Settings for training and averaging one model. The defaults are the paper's base model."""

    training: TrainingSettings = TrainingSettings()
    averaging: AveragingSettings = AveragingSettings()

    @model_validator(mode="after")
    def _keeps_enough(self) -> "Recipe":
        last, training = self.averaging.last, self.training
        if last > training.keep_checkpoints:
            raise ValueError(f"averaging.last is {last}, but training.keep_checkpoints is {training.keep_checkpoints}")
        if last > (written := len(training.kept_updates)):
            raise ValueError(
                f"averaging.last is {last}, but {training.updates} updates with a checkpoint every "
                f"{training.checkpoint_updates} write only {written}; lower training.checkpoint_updates"
            )
        return self


class Grid(Settings):
    """Settings of Table 3: its base, and the user's rows beside the paper's. Checkpoints are not averaged."""

    training: TrainingSettings = TrainingSettings()
    text: dict[str, Any] = Field(default_factory=dict)
    """Differences from the profile's text, e.g. {"vocabulary": {"size": 1000}}, since small models need less of it."""
    rows: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Maps rows to their differences from base, e.g. {"F1": {"n_layers": 1, "label_smoothing": 0.2}}. Sizes are
    absolute, not relative to base."""
    base_seeds: int = Field(default=1, ge=1, le=100)
    """The minimum number of base's seeds; two or more give the standard deviation between seeds."""


class SearchGrid(Settings):
    """The searches that --choose-decoding tries on the dev set, besides that of `decoding` (§6.1: the beam and α "were
    chosen after experimentation on the development set", whose grid is not stated)."""

    beam_sizes: tuple[BeamSize, ...] = Field((1, 2, 4, 8), min_length=1)
    length_penalties: tuple[LengthPenalty, ...] = Field((0.0, 0.6, 1.0, 1.4), min_length=1)


SCALED, RATES = ("updates", "checkpoint_updates", "validation_updates", "log_updates"), "learning_rate_scales"
"""The updates of a run and its intervals, which follow --updates; Table 4's choices of a rate, with their warm-ups."""
GENERATED = "generated"
"""The beginning of the names of texts whose scores cannot be compared with the paper's."""
COMPETITORS = ("recurrent", "convolutional")


class Profile(BaseProfile):
    """All settings of Tables 2 and 3."""

    data: str = not_in_fingerprint("text of the user's own")
    """A short name of the text, for the table."""
    own_pairs: int | None = not_in_fingerprint(None)
    """The number of the user's training pairs, by which the settings were chosen; None if a profile was named."""
    measured_on: str = not_in_fingerprint("")
    """The text that settings chosen by size were measured on; empty if none."""
    corpora: dict[str, EmbeddedSettings | Multi30kSettings | Wmt14Settings | FilesSettings]
    """Settings of the text by language pair, e.g. "en-de"."""
    cleaning: CleaningSettings = CleaningSettings()
    vocabulary: VocabularySettings = VocabularySettings()
    encoding: EncodingSettings = EncodingSettings()
    recipes: dict[str, Recipe]
    """Recipes by model ("base", "big", "long", COMPETITORS); their vocabulary_size is `vocabulary.size`."""
    grid: Grid = Grid()
    """Settings of Table 3; its models' vocabulary_size is `vocabulary.size`, too."""
    decoding: DecodingSettings = DecodingSettings()
    choice: SearchGrid = SearchGrid()
    pairs: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings that differ for a language pair, e.g. {"en-fr": {"vocabulary": {"size": 32_000}}}."""

    @property
    def default_models(self) -> list[str]:
        """The models to train unless others are named."""
        return [name for name in self.recipes if name not in (*COMPETITORS, "long")]

    def _source(self) -> str:
        if self.own_pairs is None:
            return f"{super()._source()}: {self.data}"
        measured = f"measured on {self.measured_on}" if self.measured_on else "not measured at this size"
        pairs = f"{self.own_pairs:,} training pairs of your own text"
        return f"default settings for {pairs} ({measured}); override with --profile or --set"

    def for_pair(self, pair: str) -> Self:
        """Returns the profile with the settings in `pairs` for a language pair. Raises UserError for an unknown one."""
        if not self.pairs.get(pair):
            return self
        described = describe(self)
        del described["pairs"]
        merge(described, self.pairs[pair], f"pairs.{pair}")
        return self.remade(described, f"pairs.{pair}.")

    def for_grid(self) -> Self:
        """Returns the profile with the text settings of Table 3. Raises UserError for an unknown setting."""
        if not self.grid.text:
            return self
        described = describe(self)
        del described["grid"]["text"]
        merge(described, self.grid.text, "grid.text")
        return self.remade(described, "grid.text.")

    def remade(self, described: dict[str, Any], within: str = "") -> Self:
        """Validates changed settings as a profile. Raises UserError for invalid ones, with `within` before the name."""
        for pair, corpus in described["corpora"].items():
            if not isinstance(corpus, Settings):  # validated as the corpus's own class, for a clear message
                described["corpora"][pair] = checked(type(self.corpora[pair]), f"{within}corpora.{pair}.", **corpus)
        return checked(type(self), within, **{name: getattr(self, name) for name in self.FIXED}, **described)

    @model_validator(mode="after")
    def _texts_are_of_their_pairs(self) -> Self:
        for pair, corpus in self.corpora.items():
            if not pair.endswith(f"-{corpus.target}"):
                raise ValueError(f"corpora.{pair}.target is {corpus.target!r}, which is not the target of {pair}")
        return self

    @model_validator(mode="after")
    def _one_vocabulary_size(self) -> Self:
        def sized(training: TrainingSettings) -> dict[str, TrainingSettings]:
            model = replace(training.model, vocabulary_size=self.vocabulary.size)
            return {"training": training.model_copy(update={"model": model})}

        recipes = {name: recipe.model_copy(update=sized(recipe.training)) for name, recipe in self.recipes.items()}
        object.__setattr__(self, "recipes", recipes)
        object.__setattr__(self, "grid", self.grid.model_copy(update=sized(self.grid.training)))
        return self

    def recorded(self) -> dict[str, Any]:
        """Returns what `aiayn train` needs of it: all but the fields that have other types in a parser's profile."""
        return self.model_dump(mode="json", exclude={"corpora", "choice"})


ProfileT = TypeVar("ProfileT", bound=Profile)


def describe(profile: Profile) -> dict[str, Any]:
    """Returns a profile as mutable nested dictionaries, without vocabulary_size, which follows `vocabulary.size`."""
    described = profile.model_dump(exclude=profile.FIXED)
    for trained in _trained(described):
        del trained["training"]["model"]["vocabulary_size"]
    return described


def _trained(described: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the recipes, and Table 3's grid where the profile has one."""
    return [*described["recipes"].values(), *filter(None, [described.get("grid")])]


def configure(described: dict[str, Any], config: Path | None) -> None:
    """Applies the changes in a TOML file, in place. Raises UserError for an unknown setting."""
    changes = read_config(config)
    changes.pop("profile", None)
    change(described, changes, where=str(config))


def finished(profile: ProfileT, described: dict[str, Any], overrides: Sequence[str]) -> ProfileT:
    """Applies `overrides` ("key=value") and returns the profile. Raises UserError for an unknown key or invalid value.

    The settings of language pairs and of Table 3's text are checked, too, even if the command does not use them.
    """
    for override in overrides:
        change(described, read_override(override), where=f"--set {override}")
    made = profile.remade(described)
    for pair in made.corpora:
        made.for_pair(pair).for_grid()
    return made


def change(described: dict[str, Any], changes: Mapping[str, Any], where: str) -> None:
    """Merges a user's changes, in place. They apply everywhere, except those of `pairs` and `grid.text`; `updates` is
    that setting of all models.

    Raises UserError for an unknown key or language pair.
    """
    changes = dict(changes)
    if (updates := changes.pop("updates", None)) is not None:
        _shorten(described, updates, where)
    of_pairs = changes.get("pairs", {})
    for pair, difference in of_pairs.items() if isinstance(of_pairs, Mapping) else ():
        if described["corpora"] and pair not in described["corpora"]:  # empty for prepared text
            raise UserError(f"{where}: no language pair {pair}; choose one of {', '.join(described['corpora'])}")
        if not isinstance(difference, Mapping):
            raise UserError(f"{where}: pairs.{pair} is a group; set one of its settings")
    for difference in (*described["pairs"].values(), described.get("grid", {}).get("text", {})):
        _forget(difference, changes)
    merge(described, changes, where)


def _shorten(described: dict[str, Any], updates: Any, where: str) -> None:
    """Sets the updates of all runs, in place; scales warm-ups and intervals, rows' own too; keeps the highest rates."""
    if type(updates) is not int or updates < 1:
        raise UserError(f"{where}: updates is {updates!r}; give a number of updates, for all models")
    for trained in _trained(described):
        training, optimizer = trained["training"], trained["training"]["optimizer"]
        with suppress(TypeError, ValueError, ZeroDivisionError):  # of a wrong value, which is told when all are known
            full, before = training["updates"], optimizer["warmup_steps"]
            rows = [row for row in trained.get("rows", {}).values() if isinstance(row, dict)]
            for settings in (optimizer, training, *rows):
                for name in settings.keys() & {"warmup_steps", *SCALED}:
                    settings[name] = max(1, settings[name] * updates // full)
            training["validation_updates"] = max(updates // 10, training["validation_updates"])
            for settings in (optimizer, *(row for row in rows if "learning_rate_scale" in row)):
                settings["learning_rate_scale"] *= (optimizer["warmup_steps"] / before) ** 0.5
            if "averaging" in trained:
                trained["averaging"]["last"] = min(trained["averaging"]["last"], updates)
                if rates := described["choice"].get(RATES):
                    pairs = (each if isinstance(each, list | tuple) else (each, None) for each in rates)
                    described["choice"][RATES] = [(rate, own and max(1, own * updates // full)) for rate, own in pairs]
        training["updates"] = updates
    of_recipes = {name: {"training": dict.fromkeys(SCALED)} for name in described["recipes"]}
    for difference in described["pairs"].values():  # which no longer differs in what was scaled
        _forget(difference, {"recipes": of_recipes})


def _forget(difference: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Removes, in place, the settings that `changes` names."""
    for key, value in changes.items():
        if not isinstance(value, Mapping):
            difference.pop(key, None)
        elif isinstance(difference.get(key), dict):
            _forget(difference[key], value)
