"""Profiles: named sets of settings for an experiment, given as differences from the paper's settings.

A user's own experiment is a TOML file that names a profile and the settings that differ from it:

    profile = "multi30k"
    decoding.beam_size = 8
    recipes.base.training.updates = 5000
    grid.rows.F1 = {n_layers = 1, dropout = 0.3}       # an additional row for Table 3
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError, model_validator

from model.config import BASE, BIG, OptimizerConfig, TransformerConfig
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
        if not training.checkpoint_minutes and last > (written := -(-training.updates // training.checkpoint_updates)):
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

    def for_pair(self, pair: str) -> "Profile":
        """Returns the profile with a language pair's own settings applied. Raises UserError if one does not exist."""
        if not self.pairs.get(pair):
            return self
        described = _described(self) | {"pairs": {}}
        return self._changed(described, self.pairs[pair], where=f"pairs.{pair}")

    def for_grid(self) -> "Profile":
        """Returns the profile with the text of Table 3. Raises UserError if one of its settings does not exist."""
        if not self.grid.text:
            return self
        described = _described(self)
        described["grid"]["text"] = {}
        return self._changed(described, self.grid.text, where="grid.text")

    def _changed(self, described: dict[str, Any], differences: Mapping[str, Any], where: str) -> "Profile":
        """Makes the profile of its description with `differences` applied; a corpus remains of its kind."""
        _merge(described, differences, where)
        for pair, corpus in described["corpora"].items():
            described["corpora"][pair] = checked(type(self.corpora[pair]), f"{where}.corpora.{pair}.", **corpus)
        _size_models(described, where)
        return checked(Profile, **described)

    @model_validator(mode="after")
    def _one_vocabulary_size(self) -> "Profile":
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


def _small(model: TransformerConfig, optimizer: OptimizerConfig, **training: Any) -> Recipe:
    """Makes a recipe for minutes on two cores; checkpoints are counted in updates, so reruns average the same ones."""
    return Recipe(training=TrainingSettings(model=model, optimizer=optimizer, checkpoint_minutes=0, **training))


_GENERATED: dict[str, Any] = {
    "optimizer": OptimizerConfig(warmup_steps=200, learning_rate_scale=0.35),
    "budget_tokens": 400,
    "micro_batches": 1,
    "checkpoint_updates": 50,
    "validation_updates": 150,
    "log_updates": 10,
    "workers": 1,
}
EMBEDDED = Profile(
    name="embedded",
    data="generated text",
    corpora={
        "en-de": EmbeddedSettings(target="de", train_pairs=48_000),
        "en-fr": EmbeddedSettings(target="fr", train_pairs=48_000),
    },
    vocabulary=VocabularySettings(size=1500, character_coverage=1, byte_fallback=False),
    recipes={
        "base": _small(
            replace(BASE, n_layers=2, d_model=128, d_ff=512, n_heads=4, d_k=32, d_v=32, dropout=0.0),
            updates=1100,
            **_GENERATED,
        ),
        "big": _small(
            replace(BIG, n_layers=2, d_model=144, d_ff=576, n_heads=4, d_k=36, d_v=36, dropout=0.0),
            updates=1100,
            **_GENERATED,
        ),
    },
    grid=Grid(
        text={"vocabulary": {"size": 1000}, "corpora": {pair: {"train_pairs": 4000} for pair in ("en-de", "en-fr")}},
        base_seeds=3,
        training=TrainingSettings(
            model=replace(BASE, n_layers=3, d_model=64, d_ff=256, n_heads=8, d_k=8, d_v=8, dropout=0.05),
            checkpoint_minutes=0,
            precision="float32",
            updates=2600,
            **{
                **_GENERATED,
                "optimizer": OptimizerConfig(warmup_steps=300, learning_rate_scale=0.25),
                "checkpoint_updates": 650,
                "validation_updates": 260,
            },
        ),
    ),
)
"""Generated text; takes minutes on two cores, on which two models train side by side."""

_MULTI30K: dict[str, Any] = {
    "optimizer": OptimizerConfig(warmup_steps=1000, learning_rate_scale=0.7),
    "budget_tokens": 1000,
    "micro_batches": 1,
    "checkpoint_updates": 150,
    "validation_updates": 300,
    "threads": 2,
}
MULTI30K = Profile(
    name="multi30k",
    data="Multi30k task 1",
    corpora={"en-de": Multi30kSettings(target="de"), "en-fr": Multi30kSettings(target="fr")},
    vocabulary=VocabularySettings(size=6000, character_coverage=1, byte_fallback=False),
    recipes={
        "base": _small(
            replace(BASE, n_layers=3, d_model=192, d_ff=768, n_heads=4, d_k=48, d_v=48), updates=4200, **_MULTI30K
        ),
        "big": _small(
            replace(BIG, n_layers=3, d_model=224, d_ff=896, n_heads=4, d_k=56, d_v=56, dropout=0.1),
            updates=4200,
            **_MULTI30K,
        ),
    },
    grid=Grid(
        text={"vocabulary": {"size": 3000}},
        training=TrainingSettings(
            model=replace(BASE, n_layers=3, d_model=64, d_ff=256, n_heads=8, d_k=8, d_v=8),
            checkpoint_minutes=0,
            precision="float32",
            updates=5000,
            **{
                **_MULTI30K,
                "optimizer": OptimizerConfig(warmup_steps=500, learning_rate_scale=0.35),
                "checkpoint_updates": 1000,
                "validation_updates": 500,
                "threads": 1,
                "workers": 1,
            },
        ),
        base_seeds=3,
    ),
)
"""Real text, for one machine."""

WMT14 = Profile(
    name="wmt14",
    data="WMT 2014",
    corpora={"en-de": Wmt14Settings(target="de"), "en-fr": Wmt14Settings(target="fr")},
    recipes={
        "base": Recipe(),
        "big": Recipe(
            training=TrainingSettings(model=BIG, updates=300_000, keep_checkpoints=20),
            averaging=AveragingSettings(last=20),
        ),
    },
    pairs={"en-fr": {"vocabulary": {"size": 32_000}, "recipes": {"big": {"training": {"model": {"dropout": 0.1}}}}}},
)
"""The paper's own setup (§5, §6.1), with nothing scaled down."""

PROFILES = {profile.name: profile for profile in (EMBEDDED, MULTI30K, WMT14)}


def load_profile(
    name: str | None = None,
    *,
    data: Path | None = None,
    files: Sequence[Path] = (),
    config: Path | None = None,
    overrides: Sequence[str] = (),
) -> Profile:
    """Loads a profile and applies, in this order, `config` (TOML), `data`, `files` and `overrides` ("key=value").

    Raises UserError for an unknown profile or key, or an invalid value.
    """
    changes = _read_config(config) if config else {}
    profile_name = changes.pop("profile", None)
    chosen = name or profile_name or EMBEDDED.name
    if chosen not in PROFILES:
        raise UserError(f"there is no profile {chosen!r}; choose one of {', '.join(PROFILES)}")
    described = _described(PROFILES[chosen])
    _change(described, changes, where=str(config))
    if data is not None:
        readable = {pair: corpus for pair, corpus in described["corpora"].items() if "data" in corpus}
        if not readable:
            raise UserError(f"--data has no meaning for profile {chosen}, whose text is generated; see --files")
        for corpus in readable.values():
            corpus["data"] = data
    if files:
        corpora = [FilesSettings.load(path) for path in files]
        described["data"] = "text of the user's own"
        described["corpora"] = {f"{corpus.source}-{corpus.target}": corpus for corpus in corpora}
        described["grid"]["text"].pop("corpora", None)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise UserError(f"--set {override}: write it as key=value, e.g. --set decoding.beam_size=1")
        nested: dict[str, Any] = {}
        inner = nested
        *parents, last = key.strip().split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = _value(value.strip())
        _change(described, nested, where=f"--set {override}")
    for pair, corpus in described["corpora"].items():
        if not isinstance(corpus, Settings):  # validate as the profile's own kind of corpus, for a clear message
            kind = type(PROFILES[chosen].corpora[pair])
            described["corpora"][pair] = checked(kind, within=f"corpora.{pair}.", **corpus)
    _size_models(described, where="this experiment")
    return checked(Profile, **described)


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


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"--config {path}: there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--config {path}: not valid TOML ({error})") from None


def _value(text: str) -> Any:
    """Parses a TOML value, else returns the text itself: `--set seed=3`, `--set training.precision=float32`."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _described(profile: Profile) -> dict[str, Any]:
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


def _size_models(described: dict[str, Any], where: str) -> None:
    """Gives the models the profile's vocabulary size. Raises UserError if another size is requested explicitly."""
    size = described["vocabulary"]["size"]
    for key, model in _models(described):
        if model["vocabulary_size"] not in (None, size):
            raise UserError(
                f"{where}: {key}.vocabulary_size is {model['vocabulary_size']}, but vocabulary.size is {size}; "
                "set vocabulary.size alone; the models follow it"
            )
        model["vocabulary_size"] = size


def _change(described: dict[str, Any], changes: Mapping[str, Any], where: str) -> None:
    """Merges a user's changes, which apply everywhere unless made below `pairs` or `grid.text`. Raises UserError."""
    for difference in (*described["pairs"].values(), described["grid"]["text"]):
        _forget(difference, changes)
    _merge(described, changes, where)


def _forget(difference: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Removes, in place, the settings that `changes` names."""
    for key, value in changes.items():
        if isinstance(difference.get(key), dict) and isinstance(value, Mapping):
            _forget(difference[key], value)
        else:
            difference.pop(key, None)


def _merge(settings: dict[str, Any], changes: Mapping[str, Any], where: str, path: str = "") -> None:
    """Merges `changes` into `settings`, in place. Raises UserError if a key does not exist or names a group."""
    for key, value in changes.items():
        full_key = f"{path}{key}"
        if key not in settings and not path.startswith(OPEN):
            raise UserError(f"{where}: there is no setting {full_key!r}; here are {', '.join(settings)}")
        group = settings.get(key)
        if not isinstance(group, dict):
            settings[key] = value
        elif isinstance(value, Mapping):
            _merge(group, value, where, f"{full_key}.")
        else:
            raise UserError(f"{where}: {full_key} is a group of settings, not one; in it are {', '.join(group)}")
