"""Default settings for a user's own text, by the number of its training pairs.

    own_profile(163_000).recipes["base"].training.model.d_model      # 256

docs/own-text.md lists them.
"""

from dataclasses import dataclass, replace

from model.config import BASE, BIG, OptimizerConfig
from pipeline.settings import VocabularySettings
from workflows.profiles.profile import COMPETITORS, Profile, Recipe
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
    vocabulary: VocabularySettings
    recipes: dict[str, Recipe]
    measured: str = ""
    """The text they were measured on; empty if none."""


def _recipes(
    n_layers: int,
    widths: tuple[int, int],
    dropouts: tuple[float, float],
    competitors: tuple[tuple[int, int], tuple[int, int]],
    *,
    warmup: int,
    updates: int,
    tokens: int,
    checkpoint: int,
) -> dict[str, Recipe]:
    """Returns the recipes of base and big, whose widths are multiples of `D_K`, and of the competitors (layers, d_ff).

    `tokens` is the budget of an update, `checkpoint` the number of updates between two checkpoints.
    """
    base, big = (
        sized(paper, n_layers, width, 4 * width, width // D_K, dropout)
        for paper, width, dropout in zip((BASE, BIG), widths, dropouts, strict=True)
    )
    recipes = recipes_of(
        base,
        big,
        optimizer=OptimizerConfig(warmup_steps=warmup, learning_rate_scale=0.7),
        updates=updates,
        budget_tokens=tokens,
        checkpoint_updates=checkpoint,
        validation_updates=2 * checkpoint,
        log_updates=50,
        threads=0 if tokens <= 2000 else 2,
        gpu_share=0.25 if tokens <= 2000 else 1.0,
    )
    tuned = {name: MULTI30K.recipes[name].training.optimizer.learning_rate_scale for name in COMPETITORS}
    of_size = zip(COMPETITORS, competitors, strict=True)
    return with_competitors(recipes, 0.2, {name: Competitor(*size, tuned[name]) for name, size in of_size})


SIZES = (
    Size(
        10_000,
        VocabularySettings(size=2000, character_coverage=1, byte_fallback=False),
        _recipes(
            3, (128, 192), (0.2, 0.3), ((3, 160), (6, 120)), warmup=600, updates=2000, tokens=1000, checkpoint=100
        ),
    ),
    Size(60_000, MULTI30K.vocabulary, MULTI30K.recipes, "Multi30k, 29,000 pairs"),
    Size(
        300_000,
        VocabularySettings(size=8000),
        _recipes(
            3, (256, 320), (0.1, 0.1), ((3, 312), (6, 248)), warmup=2000, updates=20_000, tokens=2000, checkpoint=500
        ),
    ),
    Size(
        2_000_000,
        VocabularySettings(size=16_000),
        _recipes(
            6, (384, 512), (0.1, 0.2), ((6, 464), (6, 544)), warmup=4000, updates=60_000, tokens=8000, checkpoint=1000
        ),
    ),
    Size(float("inf"), WMT14.vocabulary, WMT14.recipes),
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
