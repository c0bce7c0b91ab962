"""Table 2 from WMT14's archives, end to end: a real excerpt in the official layout, from a loopback server."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.corpora.wmt14 import Wmt14Settings, official_archives
from pipeline.store.artifacts import Corpus
from pipeline.store.store import Store
from pipeline.text.lines import read_lines
from tests.support.official_archives import settings_of, write_official
from tests.support.range_server import serving
from workflows import reproduce_table2, stages
from workflows.engine.dag import Step
from workflows.engine.runner import Watcher, run

DEV_PAIRS, TEST_PAIRS = 30, 12
TINY = [
    "vocabulary.size=400",
    "recipes.base.training.updates=6",
    "recipes.base.training.budget_tokens=2500",
    "recipes.base.training.micro_batches=1",
    "recipes.base.training.checkpoint_updates=1",
    "recipes.base.training.validation_updates=3",
    "recipes.base.training.model.d_model=32",
    "recipes.base.training.model.d_ff=64",
    "recipes.base.training.model.n_layers=1",
    "recipes.base.training.model.n_heads=2",
    "recipes.base.training.model.d_k=16",
    "recipes.base.training.model.d_v=16",
    "decoding.max_extra_tokens=5",
]


def official(data: Path, folder: Path, train_pairs: int) -> None:
    """Europarl's opening as training data and newstest2013 as dev and test sets, packed as WMT14 packs them."""
    europarl = [list(read_lines(data / "europarl_sample" / f"train.{language}.gz")) for language in ("en", "de")]
    news = [list(read_lines(data / "newstest2013" / f"newstest2013.{language}.gz")) for language in ("en", "de")]
    pairs, evaluation = list(zip(*europarl, strict=True)), list(zip(*news, strict=True))
    train = {name: pairs[i * train_pairs : (i + 1) * train_pairs] for i, name in enumerate(official_archives("de"))}
    write_official(folder, "de", train, evaluation[:DEV_PAIRS], evaluation[DEV_PAIRS : DEV_PAIRS + TEST_PAIRS])


class Interrupting(Watcher):
    """Sends ctrl-C after a tenth of a megabyte."""

    def event(self, step: Step[Corpus], event: dict[str, Any]) -> None:
        """Interrupts at the first report of that size."""
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
    assert isinstance(corpus, Corpus)
    assert [shard.pairs for shard in corpus.shards] == [1500, 1500, 1500]
    assert not list((tmp_path / "store" / "downloads").rglob("*.part"))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_from_archives_to_a_measured_cell(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cell is measured on the archives' text, whose hashes the store keeps. A rerun downloads nothing."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    official(data, tmp_path / "official", train_pairs=300)
    expected = settings_of(tmp_path / "official", "de", DEV_PAIRS, TEST_PAIRS)
    with serving(tmp_path / "official") as server:
        server.cut_bytes = 15_000  # a connection that keeps failing
        overrides = [*TINY, f"corpora.en-de.base_url={server.url}"]
        for name, archive in expected["archives"].items():
            overrides += [f"corpora.en-de.archives.{name}.size_bytes={archive.size_bytes}"]
            overrides += [f"corpora.en-de.archives.{name}.checksum={archive.checksum}"]
        for name in ("dev", "test"):
            overrides += [f"corpora.en-de.{name}.pairs={expected[name].pairs}"]
            overrides += [f"corpora.en-de.{name}.checksum={expected[name].checksum}"]
        arguments = {"pairs": "en-de", "models": "base", "store": tmp_path / "runs", "profile": "wmt14"}
        reproduce_table2.main(overrides=overrides, **arguments)
        assert len(server.asked) > 5
        server.asked.clear()
        reproduce_table2.main(overrides=overrides, **arguments)
        assert server.asked == []
    output = capsys.readouterr().out
    assert "read en-de" in output.split("Table 2")[0]
    report = Path(output.split("report: ")[1].split("\n")[0])
    table = json.loads((report.parent / "table2.json").read_text())
    (base,) = [
        row for row in table["tables"][0]["rows"] if row["name"] == "Transformer (base)" and row["origin"] == "measured"
    ]
    assert base["values"]["en-de.sacrebleu"] >= 0
    assert base["values"]["en-fr.sacrebleu"] == "not run"
    (folder,) = (tmp_path / "runs" / "store").glob("wmt14-*")
    manifest = json.loads((folder / "manifest.json").read_text())
    figures = manifest["figures"]
    assert figures["shards"] == [300, 300, 300]
    hashes = [archive.checksum for archive in expected["archives"].values()]
    assert {"sha256:" + archive["sha256"] for archive in figures["report"]["archives"].values()} == set(hashes)
    assert next(read_lines(folder / "00000.de")) == "Wiederaufnahme der Sitzungsperiode"
