"""Reading WMT14's archives as a stage, in the official layout, from a loopback server."""

import secrets
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.corpora.wmt14 import Wmt14Settings, official_archives
from pipeline.settings import CleaningSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support.official_archives import settings_of, write_official
from tests.support.range_server import serving
from workflows import stages
from workflows.engine.dag import Step
from workflows.engine.interface import Watcher
from workflows.engine.runner import run


class Interrupting(Watcher):
    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        if event.get("done", 0) > 0.1 and event["unit"] == "MB":
            raise KeyboardInterrupt


@pytest.mark.usefixtures("ray_cluster")
def test_an_interrupted_download_goes_on(tmp_path: Path) -> None:
    """Ctrl-C in the middle of two archives: partial downloads are kept, and the same command requests only the rest."""
    pairs = [(secrets.token_hex(40), secrets.token_hex(40)) for _ in range(6000)]  # not compressible
    write_official(tmp_path / "official", "de", dict.fromkeys(official_archives("de"), pairs), pairs[:30], pairs[:12])
    with serving(tmp_path / "official") as server:
        fields = settings_of(tmp_path / "official", "de", 30, 12) | {"base_url": server.url}
        step, _ = stages.text_of("en-de", Wmt14Settings(**fields), CleaningSettings())
        server.pause_s = 0.3
        with pytest.raises(KeyboardInterrupt):
            run([step], Store(tmp_path), [Interrupting()])
        assert len(list((tmp_path / "store" / "downloads").rglob("*.part"))) >= 2  # in parallel
        while any("process_request" in thread.name for thread in threading.enumerate()):
            time.sleep(0.1)  # the cancelled tasks still read, and could complete what they have begun
        server.pause_s = 0.0
        server.asked.clear()
        (corpus,) = run([step], Store(tmp_path))
        assert any(asked for _, asked in server.asked)
    assert [shard.pairs for shard in corpus.shards] == [6000, 6000, 6000]
    assert not list((tmp_path / "store" / "downloads").rglob("*.part"))
