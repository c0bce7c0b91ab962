"""The comparison of two stores reports what matters and ignores values that depend only on the clock."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.comparison import differences, outcome


def _store(folder: Path, **changed: Any) -> Path:
    """Makes a small store like the workflow's; `changed` replaces values by name."""
    values = {
        "weights": b"0123",
        "loss": 2.5,
        "score": 31.5,
        "seconds": 3.0,
        "text": b"Zwei Hunde rennen.\n",
        "table": "tabulating-3",
        **changed,
    }
    table = {
        "tables": [
            {
                "name": "Table 2",
                "rows": [
                    {"name": "Transformer (base)", "origin": "measured", "values": {"sacrebleu": values["score"]}}
                ],
            }
        ],
        "differences": [{"what": "training time", "here": f"{values['seconds']} s"}],
        "notes": ["Each measured cell is one training with one seed."],
    }
    line = {"update": 8, "loss": values["loss"], "train_s": values["seconds"]}
    files: dict[str, bytes] = {
        "training-1/checkpoints/00000008/model.safetensors": values["weights"],
        "training-1/metrics.jsonl": f"{json.dumps(line)}\n".encode(),
        "training-1/manifest.json": json.dumps({"seconds": values["seconds"]}).encode(),
        "decoding-2/test.de": values["text"],
        f"{values['table']}/table2.json": json.dumps(table).encode(),
    }
    for name, content in files.items():
        path = folder / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_different_times_are_ignored(tmp_path: Path) -> None:
    """Two runs of the same command, one of them slower and elsewhere, are equal; the weights are counted."""
    one, other = outcome(_store(tmp_path / "a")), outcome(_store(tmp_path / "b", seconds=7.0, table="tabulating-4"))
    assert differences(one, other) == []
    assert one.weights_bytes == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda folder: _store(folder, weights=b"0124"), "00000008/model.safetensors differs"),
        (lambda folder: _store(folder, loss=2.6), "metrics.jsonl differs in line 1"),
        (lambda folder: _store(folder, score=31.6), "31.6"),
        (lambda folder: (folder / "store/decoding-2/test.de").unlink(), "test.de is missing"),
        (lambda folder: (folder / "store/training-1/more.arrow").write_bytes(b""), "more.arrow is unexpected"),
    ],
)
def test_a_difference_is_named(tmp_path: Path, change: Callable[[Path], Any], named: str) -> None:
    """Changed weights, text, loss or score and missing or additional files and stages are reported by name."""
    expected = outcome(_store(tmp_path / "expected"))
    change(_store(tmp_path / "found"))
    found = differences(expected, outcome(tmp_path / "found"))
    assert any(named in line for line in found), found
