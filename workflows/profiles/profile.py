"""The settings of an experiment as classes, and changes to them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from model.config import BASE
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.corpora.files import FilesSettings
from pipeline.corpora.multi30k import Multi30kSettings
from pipeline.corpora.wmt14 import Wmt14Settings
from pipeline.errors import UserError
from pipeline.settings import (
    AveragingSettings,
    CleaningSettings,
    DecodingSettings,
    EncodingSettings,
    Settings,
    TrainingSettings,
    VocabularySettings,
    not_in_fingerprint,
)

SettingsT = TypeVar("SettingsT", bound=Settings)
OPEN = ("grid.rows.", "grid.text.", "pairs.")
"""The prefixes below which users may add new keys."""
MAX_SHOWN = 2
"""Models whose sizes the line about the settings tells."""


def spaced(number: int) -> str:
    """Writes a number with spaces between its thousands: `163 000`."""
    return f"{number:,}".replace(",", " ")


class Recipe(Settings):
    """Settings for training and averaging one model. The defaults are the paper's base model."""

    training: TrainingSettings = TrainingSettings()
    averaging: AveragingSettings = AveragingSettings()

    @model_validator(mode="after")
    def _keeps_enough(self) -> "Recipe":
        last, training = self.averaging.last, self.training
        if last > training.keep_checkpoints:
            raise ValueError(
                f"averaging.last is {last}, but only training.keep_checkpoints = {training.keep_checkpoints} are kept"
            )
        if last > (written := len(training.kept_updates)):
            raise ValueError(
                f"averaging.last is {last}, but {training.updates} updates with a checkpoint every "
                f"{training.checkpoint_updates} write only {written}; lower training.checkpoint_updates"
            )
        return self


class Grid(Settings):
    """Settings of Table 3: its base, and the user's own rows in addition to the paper's. Nothing is averaged."""

    training: TrainingSettings = TrainingSettings()
    text: dict[str, Any] = Field(default_factory=dict)
    """What differs from the profile's text, e.g. {"vocabulary": {"size": 1000}}: small models need little of it."""
    rows: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Maps rows to their differences from base, e.g. {"F1": {"n_layers": 1, "label_smoothing": 0.2}}. Sizes are
    absolute, not relative to base."""
    base_seeds: int = Field(default=1, ge=1, le=100)
    """The least number of seeds that base is trained with; from two on, they measure the noise between seeds."""


class Profile(Settings):
    """All settings that Table 2 and Table 3 are made from."""

    name: str
    data: str = not_in_fingerprint("text of the user's own")
    """A few words that describe the text in the table."""
    own_pairs: int | None = not_in_fingerprint(None)
    """The training pairs of a user's own text for which the settings were chosen; None if a profile was named."""
    measured_on: str = not_in_fingerprint("")
    """What settings chosen by size were measured on; empty if on nothing."""
    corpora: dict[str, EmbeddedSettings | Multi30kSettings | Wmt14Settings | FilesSettings]
    """Maps language pairs, e.g. "en-de", to the settings of their text."""
    cleaning: CleaningSettings = CleaningSettings()
    vocabulary: VocabularySettings = VocabularySettings()
    encoding: EncodingSettings = EncodingSettings()
    recipes: dict[str, Recipe]
    """Maps models ("base", "big") to their recipes. `vocabulary.size` determines the models' vocabulary_size."""
    grid: Grid = Grid()
    """Settings of Table 3; `vocabulary.size` applies to it too."""
    decoding: DecodingSettings = DecodingSettings()
    pairs: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Maps language pairs to their own settings, e.g. {"en-fr": {"vocabulary": {"size": 32_000}}}."""

    def in_force(self, trainings: Mapping[str, TrainingSettings]) -> str:
        """Says in a line whose settings these are; where they were chosen for the text, also what they come to.

        `trainings` are those that will run, by the names of their models.
        """
        if self.own_pairs is None:
            return f"settings of profile {self.name}: {self.data}"
        sizes = {
            f"{training.model.n_layers} layer{'s' * (training.model.n_layers > 1)} of {training.model.d_model}, "
            f"{spaced(training.updates)} updates of {spaced(training.budget_tokens)} tokens": name
            for name, training in reversed([*trainings.items()])
        }
        shown = [f"{name}: {size}" for size, name in reversed([*sizes.items()])]
        more = f" and {len(shown) - MAX_SHOWN} others" if len(shown) > MAX_SHOWN else ""
        measured = f"measured on {self.measured_on}" if self.measured_on else "not measured at this size"
        pieces = {training.model.vocabulary_size for training in trainings.values()} or {self.vocabulary.size}
        return (
            f"settings for {spaced(self.own_pairs)} training pairs of your own text ({measured}): "
            f"{' or '.join(map(spaced, sorted(pieces)))} pieces; {'; '.join(shown[:MAX_SHOWN])}{more}; "
            "--profile and --set change them"
        )

    def for_pair(self, pair: str) -> Self:
        """Returns the profile with a language pair's own settings applied. Raises UserError if one does not exist."""
        if not self.pairs.get(pair):
            return self
        described = describe(self) | {"pairs": {}}
        return self._changed(described, self.pairs[pair], where=f"pairs.{pair}")

    def for_grid(self) -> Self:
        """Returns the profile with the text of Table 3. Raises UserError if one of its settings does not exist."""
        if not self.grid.text:
            return self
        described = describe(self)
        described["grid"]["text"] = {}
        return self._changed(described, self.grid.text, where="grid.text")

    def _changed(self, described: dict[str, Any], differences: Mapping[str, Any], where: str) -> Self:
        """Makes the profile of its description with `differences` applied; a corpus remains of its kind."""
        merge(described, differences, where)
        for pair, corpus in described["corpora"].items():
            described["corpora"][pair] = checked(type(self.corpora[pair]), f"{where}.corpora.{pair}.", **corpus)
        size_models(described, where)
        return checked(type(self), **described)

    @model_validator(mode="after")
    def _one_vocabulary_size(self) -> Self:
        def sized(trained: SettingsT) -> SettingsT:
            """Returns a recipe or grid whose model has the profile's vocabulary size."""
            training: TrainingSettings = trained.training  # type: ignore[attr-defined]
            size, model = self.vocabulary.size, training.model
            if model.vocabulary_size not in (size, BASE.vocabulary_size):
                raise ValueError(f"a model's vocabulary_size is {model.vocabulary_size}; set vocabulary.size instead")
            model = replace(model, vocabulary_size=size)
            return trained.model_copy(update={"training": training.model_copy(update={"model": model})})

        object.__setattr__(self, "recipes", {name: sized(recipe) for name, recipe in self.recipes.items()})
        object.__setattr__(self, "grid", sized(self.grid))
        return self


def checked(settings: type[SettingsT], within: str = "", **values: Any) -> SettingsT:
    """Makes settings of the given values. If they are invalid, raises UserError with their names after `within`."""
    try:
        return settings(**values)
    except ValidationError as error:
        raise UserError(one_line(error, within)) from None


def one_line(error: ValidationError, within: str = "") -> str:
    """Formats what pydantic found wrong as one line."""
    mistakes = []
    for mistake in error.errors():
        where = within + ".".join(str(part) for part in mistake["loc"]) or "settings"
        mistakes.append(f"{where}: {mistake['msg'].removeprefix('Value error, ')}")
    return "; ".join(mistakes)


def describe(profile: Profile) -> dict[str, Any]:
    """Returns a profile as nested dictionaries that can be changed; no model's vocabulary_size is set."""
    described = profile.model_dump()
    for _, model in _models(described):
        model["vocabulary_size"] = None
    return described


def _models(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the models of a described profile with the keys that lead to them."""
    trained = {f"recipes.{name}": recipe for name, recipe in described["recipes"].items()}
    for key, value in (trained | {"grid": described["grid"]}).items():
        yield f"{key}.training.model", value["training"]["model"]


def size_models(described: dict[str, Any], where: str) -> None:
    """Gives the models the profile's vocabulary size. Raises UserError if another size is requested explicitly."""
    size = described["vocabulary"]["size"]
    for key, model in _models(described):
        if model["vocabulary_size"] not in (None, size):
            raise UserError(
                f"{where}: {key}.vocabulary_size is {model['vocabulary_size']}, but vocabulary.size is {size}; "
                "set vocabulary.size alone; the models follow it"
            )
        model["vocabulary_size"] = size


def change(described: dict[str, Any], changes: Mapping[str, Any], where: str) -> None:
    """Merges a user's changes, which apply everywhere unless made below `pairs` or `grid.text`. Raises UserError."""
    for difference in (*described["pairs"].values(), described["grid"]["text"]):
        _forget(difference, changes)
    merge(described, changes, where)


def _forget(difference: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Removes, in place, the settings that `changes` names."""
    for key, value in changes.items():
        if isinstance(difference.get(key), dict) and isinstance(value, Mapping):
            _forget(difference[key], value)
        else:
            difference.pop(key, None)


def merge(settings: dict[str, Any], changes: Mapping[str, Any], where: str, path: str = "") -> None:
    """Merges `changes` into `settings`, in place. Raises UserError if a key does not exist or names a group."""
    for key, value in changes.items():
        full_key = f"{path}{key}"
        if key not in settings and not path.startswith(OPEN):
            raise UserError(f"{where}: there is no setting {full_key!r}; here are {', '.join(settings)}")
        group = settings.get(key)
        if not isinstance(group, dict):
            settings[key] = value
        elif isinstance(value, Mapping):
            merge(group, value, where, f"{full_key}.")
        else:
            raise UserError(f"{where}: {full_key} is a group of settings, not one; in it are {', '.join(group)}")
