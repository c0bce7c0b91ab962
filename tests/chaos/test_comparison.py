import json
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.comparison import differences, outcome


def _store(folder: Path, loss: float = 2.5, score: float = 31.5, seconds: float = 3.0, model: str = "0123") -> Path:
    time = {"what": "training time", "here": f"{seconds} s"}
    rows = {"rows": [{"name": "base", "values": {"bleu": score, "train_s": seconds}}]}
    content = {
        "training-1/model.safetensors": model,
        "training-1/metrics.jsonl": json.dumps({"update": 8, "loss": loss, "train_s": seconds}),
        "training-1/manifest.json": json.dumps({"seconds": seconds}),
        f"tabulating-{seconds}/table2.json": json.dumps({"tables": [rows], "differences": [time], "notes": []}),
    }
    for name, text in content.items():
        (path := folder / "store" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, ""),
        ({"model": "0124"}, "training-1/model.safetensors, line 1: "),
        ({"loss": 2.6}, "training-1/metrics.jsonl, line 1: {'update': 8, 'loss': 2.6} instead of "),
        ({"score": 31.6}, "tabulating/table2.json, line 1: {'name': 'base', 'values': {'bleu': 31.6}} instead of "),
    ],
)
def test_all_differences_are_named_but_those_of_time(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    expected, other = outcome(_store(tmp_path / "a")), _store(tmp_path / "b", seconds=7.0, **changes)
    found = differences(expected, outcome(other))
    assert len(found) == bool(named)
    assert "".join(found).startswith(named)
    (other / "store/training-1/manifest.json").rename(other / "store/training-1/more.arrow")
    moved = ["training-1/manifest.json is missing", "training-1/more.arrow is unexpected"]
    assert {*differences(expected, outcome(other))} == {*found, *moved}
