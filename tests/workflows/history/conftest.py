"""Publishes stages that did nothing but take their time."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.artifact import MANIFEST, Artifact, publish

BEGAN = datetime(2026, 11, 21, 10, tzinfo=UTC).timestamp()


@pytest.fixture
def publish_stage(tmp_path: Path) -> Callable[..., Artifact]:
    """Publishes in `tmp_path`/store by `publish_stage("clean", text, began_s=6, seconds=1)`, times from 10 o'clock."""

    def build(
        label: str,
        *inputs: Artifact,
        began_s: float,
        seconds: float,
        stage: str = "",
        settings: list[dict[str, Any]] | None = None,
        figures: dict[str, Any] | None = None,
        files: dict[str, str] | None = None,
    ) -> Artifact:
        def make(folder: Path) -> Artifact:
            for name, text in (files or {}).items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            return Artifact(folder)

        stage = stage or f"{label.split()[0]}.run"
        fingerprint = hashlib.sha256(label.encode()).hexdigest()[:16]
        manifest = {
            "label": label,
            "stage": stage,
            "version": 1,
            "fingerprint": fingerprint,
            "inputs": {one.manifest["label"]: one.manifest["fingerprint"] for one in inputs},
            "settings": settings or [],
            "libraries": {"torch": "2.13.0"},
        }
        made = publish(tmp_path / "store" / f"{stage.partition('.')[0]}-{fingerprint}", make, manifest)
        started = datetime.fromtimestamp(BEGAN + began_s, UTC).isoformat()
        timed = {**made.manifest, "started": started, "seconds": seconds, "figures": figures or {}}
        (made.folder / MANIFEST).write_text(json.dumps(timed))
        return made

    return build
