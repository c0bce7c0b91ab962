"""Reading WMT14's archives as a stage: a real excerpt in the official layout, from a loopback server."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.corpora.wmt14 import Wmt14Settings, official_archives
from pipeline.store.artifacts import Corpus
from pipeline.store.store import Store
from pipeline.text.lines import read_lines
from tests.support.official_archives import settings_of, write_official
from tests.support.range_server import serving
from workflows import stages
from workflows.engine.dag import Step
from workflows.engine.runner import Watcher, run

DEV_PAIRS, TEST_PAIRS = 30, 12


def official(data: Path, folder: Path, train_pairs: int) -> None:
    europarl = [list(read_lines(data / "europarl_sample" / f"train.{language}.gz")) for language in ("en", "de")]
    news = [list(read_lines(data / "newstest2013" / f"newstest2013.{language}.gz")) for language in ("en", "de")]
    pairs, evaluation = list(zip(*europarl, strict=True)), list(zip(*news, strict=True))
    train = {name: pairs[i * train_pairs : (i + 1) * train_pairs] for i, name in enumerate(official_archives("de"))}
    write_official(folder, "de", train, evaluation[:DEV_PAIRS], evaluation[DEV_PAIRS : DEV_PAIRS + TEST_PAIRS])


class Interrupting(Watcher):
    def event(self, step: Step[Corpus], event: dict[str, Any]) -> None:
        if event.get("done", 0) > 0.1 and event["unit"] == "MB":
            raise KeyboardInterrupt


@pytest.mark.usefixtures("ray_cluster")
def test_an_interrupted_download_goes_on(parallel_text: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of two archives: partial downloads are kept, and the same command requests only the rest."""
    official(parallel_text, tmp_path / "official", train_pairs=1500)
    with serving(tmp_path / "official") as server:
        fields = settings_of(tmp_path / "official", "de", DEV_PAIRS, TEST_PAIRS) | {"base_url": server.url}
        step, _ = stages.text_of("en-de", Wmt14Settings(**fields))
        server.pause_s = 0.3
        with pytest.raises(KeyboardInterrupt):
            run([step], Store(tmp_path), [Interrupting()])
        assert server.most_at_once >= 2  # in parallel
        assert list((tmp_path / "store" / "downloads").rglob("*.part"))
        server.pause_s = 0.0
        server.asked.clear()
        (corpus,) = run([step], Store(tmp_path))
        assert any(asked for _, asked in server.asked)
    assert [shard.pairs for shard in corpus.shards] == [1500, 1500, 1500]
    assert not list((tmp_path / "store" / "downloads").rglob("*.part"))
