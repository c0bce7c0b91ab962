"""The sizes that corpora report before they are read, against the sizes after reading."""

from pathlib import Path

import pytest

from pipeline.corpora import embedded, wmt14
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.corpora.wmt14 import Wmt14Settings, official_archives
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus


@pytest.mark.parametrize("target", ["de", "fr"])
def test_generated_text_has_the_forecast_size(target: embedded.EmbeddedTarget, tmp_path: Path) -> None:
    """The size of 1 500 pairs is within 2 % of the forecast; the size of trees is not forecast."""
    settings = EmbeddedSettings(target=target, train_pairs=1500, dev_pairs=1, test_pairs=1)
    forecast = embedded.amount(settings)
    (shard,) = Corpus(embedded.generate(Context(tmp_path), settings).folder).shards("train")
    assert forecast.train_pairs == shard.pairs
    assert forecast.text_bytes == pytest.approx(shard.source.stat().st_size + shard.target.stat().st_size, rel=0.02)
    assert embedded.amount(EmbeddedSettings(target="trees")).text_bytes is None


def test_wmt14_is_known_as_far_as_its_archives_are_official() -> None:
    """There are 4.5 M and 40.8 M pairs, one archive has no exact size, and a folder needs no download."""
    german, french = (wmt14.amount(Wmt14Settings(target=target)) for target in ("de", "fr"))
    assert (german.train_pairs, french.train_pairs) == (4_520_620, 40_842_333)
    assert sum(size or 0 for size in german.downloads.values()) == 1_656_362_162
    assert french.downloads.keys() > german.downloads.keys()
    assert french.downloads["wmt13/training-parallel-un.tgz"] == pytest.approx(2.47e9, rel=0.01)
    assert wmt14.amount(Wmt14Settings(data=Path())).downloads == {}
    other = official_archives("de")["europarl-v7"].model_copy(update={"path": "other/text.tgz", "size_bytes": None})
    unknown = wmt14.amount(Wmt14Settings(archives={"europarl-v7": other}))
    assert (unknown.train_pairs, unknown.text_bytes, unknown.downloads) == (None, None, {"other/text.tgz": None})
