"""The sizes that corpora forecast before reading, against the sizes after."""

from pathlib import Path

import pytest

from pipeline.corpora import embedded
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.store.artifact import Context


@pytest.mark.parametrize("target", ["de", "fr"])
def test_generated_text_has_the_forecast_size(target: embedded.EmbeddedTarget, tmp_path: Path) -> None:
    settings = EmbeddedSettings(target=target, train_pairs=1500, dev_pairs=1, test_pairs=1)
    forecast = settings.amount()
    (shard,) = embedded.generate(Context(tmp_path), settings.text("train")).shards
    assert forecast.train_pairs == shard.pairs
    assert forecast.text_bytes == pytest.approx(shard.source.stat().st_size + shard.target.stat().st_size, rel=0.02)
    assert EmbeddedSettings(target="trees").amount().text_bytes is None
