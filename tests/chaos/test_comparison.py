"""The comparison of two stores names what differs."""

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.comparison import Outcome, differences

MADE = Outcome(
    steps=["decoding-2", "tabulating", "training-1"],
    table={"tables": [{"rows": [{"name": "Transformer (base)", "values": {"sacrebleu": 31.5}}]}]},
    curves={"training-1/metrics.jsonl": [{"update": 8, "loss": 2.5}]},
    sha256={"training-1/model.safetensors": "0123", "decoding-2/test.de": "4567"},
    weights_bytes=4,
)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sha256": {**MADE.sha256, "training-1/model.safetensors": "89"}}, "training-1/model.safetensors differs"),
        ({"curves": {"training-1/metrics.jsonl": [{"update": 8, "loss": 2.6}]}}, "metrics.jsonl differs in line 1: "),
        ({"table": {"tables": []}}, "table: {'tables': []} instead of "),
        ({"sha256": {"training-1/model.safetensors": "0123"}}, "test.de is missing"),
        ({"sha256": {**MADE.sha256, "training-1/more.arrow": ""}}, "more.arrow is unexpected"),
    ],
)
def test_a_difference_is_named(changed: dict[str, Any], named: str) -> None:
    """Changed weights, losses or scores, and missing or additional files. Equal results have no difference."""
    (line,) = differences(MADE, replace(MADE, **changed))
    assert named in line
    assert differences(MADE, replace(MADE)) == []
