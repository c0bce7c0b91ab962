"""Default settings for a user's own text, by the number of its training pairs.

    own_profile(163_000).recipes["base"].training.model.d_model      # 256

docs/own-text.md lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from model.config import BASE, BIG, OptimizerConfig
from pipeline.settings import VocabularySettings
from workflows.profiles.profile import Profile, Recipe
from workflows.profiles.translation import MULTI30K, WMT14, Competitor, recipes_of, sized, with_competitors

OWN = "own"
DATA = "text of the user's own"
D_K = 64
"""Width of a head, as in the paper."""


@dataclass(frozen=True)
class Size:
    """Settings for text up to some size."""

    most_pairs: float
    """The largest number of training pairs they are used for."""
    measured: str
    """The text they were measured on; empty if none."""
    vocabulary: VocabularySettings
    recipes: dict[str, Recipe]


def _recipes(
    n_layers: int,
    base: int,
    big: int,
    competitors: Mapping[str, tuple[int, int]],  # (layers, d_ff)
    *,
    dropouts: tuple[float, float],
    warmup_steps: int,
    **training: Any,
) -> dict[str, Recipe]:
    """Returns the recipes of base, big and the competitors; widths of base and big are multiples of `D_K`."""

    optimizer = OptimizerConfig(warmup_steps=warmup_steps, learning_rate_scale=0.7)
    shared = {"optimizer": optimizer, "threads": 2, "log_updates": 50, **training}
    recipes = recipes_of(
        *(
            sized(paper, n_layers, width, 4 * width, width // D_K, dropout)
            for paper, width, dropout in zip((BASE, BIG), (base, big), dropouts, strict=True)
        ),
        **shared,
    )
    tuned = {name: recipe.training.optimizer.learning_rate_scale for name, recipe in MULTI30K.recipes.items()}
    return with_competitors(recipes, 0.2, {name: Competitor(*size, tuned[name]) for name, size in competitors.items()})


SIZES = (
    Size(
        10_000,
        "",
        VocabularySettings(size=2000, character_coverage=1, byte_fallback=False),
        _recipes(
            3,
            128,
            192,
            {"recurrent": (3, 160), "convolutional": (6, 120)},
            dropouts=(0.2, 0.3),
            warmup_steps=600,
            updates=2000,
            budget_tokens=1000,
            checkpoint_updates=100,
            validation_updates=200,
        ),
    ),
    Size(60_000, "Multi30k, 29,000 pairs", MULTI30K.vocabulary, MULTI30K.recipes),
    Size(
        300_000,
        "",
        VocabularySettings(size=8000),
        _recipes(
            3,
            256,
            320,
            {"recurrent": (3, 312), "convolutional": (6, 248)},
            dropouts=(0.1, 0.1),
            warmup_steps=2000,
            updates=20_000,
            budget_tokens=2000,
            checkpoint_updates=500,
            validation_updates=1000,
        ),
    ),
    Size(
        2_000_000,
        "",
        VocabularySettings(size=16_000),
        _recipes(
            6,
            384,
            512,
            {"recurrent": (6, 464), "convolutional": (6, 544)},
            dropouts=(0.1, 0.2),
            warmup_steps=4000,
            updates=60_000,
            budget_tokens=8000,
            checkpoint_updates=1000,
            validation_updates=2000,
        ),
    ),
    Size(float("inf"), "", WMT14.vocabulary, WMT14.recipes),
)
"""Smallest first. The last is the paper's setup (profile wmt14)."""


def own_profile(pairs: int, has_word_spaces: bool = True) -> Profile:
    """Returns the profile for a number of training pairs; `has_word_spaces` is False for e.g. Chinese."""
    size = next(size for size in SIZES if pairs <= size.most_pairs)
    if not has_word_spaces:
        size = replace(size, vocabulary=size.vocabulary.without_word_spaces(), measured="")
    return Profile(
        name=OWN,
        data=DATA,
        own_pairs=pairs,
        measured_on=size.measured,
        corpora={},
        vocabulary=size.vocabulary,
        recipes=size.recipes,
        grid=MULTI30K.grid,  # Table 3's settings
    )
