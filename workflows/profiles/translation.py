"""The profiles of Tables 2 and 3."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from model.config import BASE, BIG, OptimizerConfig, TransformerConfig
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.corpora.multi30k import Multi30kSettings
from pipeline.corpora.wmt14 import Wmt14Settings
from pipeline.settings import (
    AveragingSettings,
    DecodingSettings,
    EncodingSettings,
    TrainingSettings,
    VocabularySettings,
)
from workflows.profiles.profile import GENERATED, Grid, Profile, Recipe


def sized(
    model: TransformerConfig, n_layers: int, d_model: int, d_ff: int, n_heads: int, dropout: float
) -> TransformerConfig:
    """Returns base or big in other sizes; the heads are together as wide as the model (§3.2.2)."""
    d_k = d_model // n_heads
    return replace(
        model, n_layers=n_layers, d_model=d_model, d_ff=d_ff, n_heads=n_heads, d_k=d_k, d_v=d_k, dropout=dropout
    )


def recipes_of(base: TransformerConfig, big: TransformerConfig, **training: Any) -> dict[str, Recipe]:
    """Returns the recipes of base and big, which share their other settings."""
    return {name: Recipe(training=TrainingSettings(model=m, **training)) for name, m in (("base", base), ("big", big))}


class Competitor(NamedTuple):
    """What a competitor does not share with base; its learning rate scale is base's where it is None."""

    n_layers: int
    d_ff: int
    learning_rate_scale: float | None = None


def with_competitors(
    recipes: dict[str, Recipe], dropout: float, competitors: Mapping[str, Competitor]
) -> dict[str, Recipe]:
    """Adds competitors by architecture, with base's other settings."""
    base, added = recipes["base"], {}
    for architecture, (n_layers, d_ff, rate) in competitors.items():
        changes: dict[str, Any] = {"architecture": architecture, "n_layers": n_layers, "d_ff": d_ff, "dropout": dropout}
        if architecture == "convolutional":
            changes |= {"positions": "learned", "max_positions": EncodingSettings().max_tokens}
        optimizer = base.training.optimizer
        changed = {
            "model": replace(base.training.model, **changes),
            "optimizer": replace(optimizer, learning_rate_scale=rate or optimizer.learning_rate_scale),
        }
        added[architecture] = base.model_copy(update={"training": base.training.model_copy(update=changed)})
    return {**recipes, **added}


_GENERATED: dict[str, Any] = {
    "optimizer": OptimizerConfig(warmup_steps=200, learning_rate_scale=0.35),
    "budget_tokens": 400,
    "checkpoint_updates": 50,
    "validation_updates": 150,
    "log_updates": 10,
    "workers": 1,
    "gpu_share": 0.25,
}
EMBEDDED = Profile(
    name="embedded",
    data=f"{GENERATED} text",
    corpora={
        "en-de": EmbeddedSettings(target="de", train_pairs=48_000),
        "en-fr": EmbeddedSettings(target="fr", train_pairs=48_000),
    },
    vocabulary=VocabularySettings(size=1500, character_coverage=1, byte_fallback=False),
    recipes=with_competitors(
        recipes_of(sized(BASE, 2, 128, 512, 4, 0.0), sized(BIG, 2, 144, 576, 4, 0.0), **_GENERATED, updates=1100),
        dropout=0.0,
        competitors={"recurrent": Competitor(2, 160), "convolutional": Competitor(4, 120)},
    ),
    grid=Grid(
        text={"vocabulary": {"size": 1000}, "corpora": {pair: {"train_pairs": 4000} for pair in ("en-de", "en-fr")}},
        base_seeds=3,
        training=TrainingSettings(
            model=sized(BASE, 3, 64, 256, 8, 0.05),
            dtype="float32",
            updates=2300,
            **{
                **_GENERATED,
                "optimizer": OptimizerConfig(warmup_steps=300, learning_rate_scale=0.25),
                "checkpoint_updates": 575,
                "validation_updates": 230,
            },
        ),
    ),
)
"""Generated text: minutes on two cores, with two models training at once."""

_MULTI30K: dict[str, Any] = {
    "optimizer": OptimizerConfig(warmup_steps=500, learning_rate_scale=0.7),
    "updates": 5600,
    "budget_tokens": 1250,
    "checkpoint_updates": 150,
    "validation_updates": 300,
    "log_updates": 50,
    "threads": 0,
    "gpu_share": 0.25,
}
_LONG = {"model": sized(BASE, 2, 256, 512, 4, 0.25), "updates": 20_000, "keep_checkpoints": 10}  # docs/log.md
MULTI30K = Profile(
    name="multi30k",
    data="Multi30k task 1",
    corpora={"en-de": Multi30kSettings(target="de"), "en-fr": Multi30kSettings(target="fr")},
    decoding=DecodingSettings(length_penalty=1.4),  # chosen on dev, like the paper's: docs/runs.md
    vocabulary=VocabularySettings(size=6000, character_coverage=1, byte_fallback=False),
    recipes=with_competitors(
        recipes_of(sized(BASE, 2, 256, 512, 4, 0.15), sized(BIG, 2, 384, 768, 6, 0.2), **_MULTI30K),
        dropout=0.2,
        competitors={"recurrent": Competitor(2, 264, 1.4), "convolutional": Competitor(4, 200, 5.6)},  # docs/log.md
    )
    | {"long": Recipe(training=TrainingSettings(**_MULTI30K | _LONG), averaging=AveragingSettings(last=10))},
    grid=Grid(
        text={"vocabulary": {"size": 3000}},
        training=TrainingSettings(
            model=sized(BASE, 3, 64, 256, 8, 0.1),
            dtype="float32",
            **{
                **_MULTI30K,
                "optimizer": OptimizerConfig(warmup_steps=500, learning_rate_scale=0.35),
                "updates": 5000,
                "budget_tokens": 1000,
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
            training=TrainingSettings(
                model=BIG,
                updates=300_000,
                checkpoint_updates=round(10 * 60 / 1.0),  # §6.1: every 10 minutes; §5.2: 1.0 s per update
                keep_checkpoints=20,
            ),
            averaging=AveragingSettings(last=20),
        ),
    },
    pairs={"en-fr": {"vocabulary": {"size": 32_000}, "recipes": {"big": {"training": {"model": {"dropout": 0.1}}}}}},
)
"""The paper's own setup (§5, §6.1), with nothing scaled down."""

PROFILES = {profile.name: profile for profile in (EMBEDDED, MULTI30K, WMT14)}
