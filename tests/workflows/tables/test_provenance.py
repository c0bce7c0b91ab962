from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipeline.records import Segment, SegmentDevices
from workflows.tables.measured import Measured
from workflows.tables.provenance import provenance_notes

TOGETHER = Segment((SegmentDevices("NVIDIA H100", 8, 6e14),), 1, "bfloat16", "2.13.0", True, 80.0)
ALONE = replace(TOGETHER, devices=(SegmentDevices("NVIDIA H100", 1, 6.2e14),), train_s=20.0)
CAPTURED = replace(TOGETHER, packed=True, captured=True)
TRAINED = "Trained in bfloat16 on {} × NVIDIA H100, with torch 2.13.0, compiled layers{}; decoded in float32."
LEFT_OUT = "2 dev pairs longer than 1024 tokens are excluded from dev loss and perplexity."


@pytest.mark.parametrize(
    ("fields", "notes"),
    [
        ({"segments": (TOGETHER, ALONE)}, [TRAINED.format("1 to 8", "")]),
        ({"segments": (CAPTURED,)}, [TRAINED.format("8", ", packed batches, a CUDA graph")]),
        ({"segments": (TOGETHER,), "dev_left_out": 2}, [TRAINED.format("8", ""), LEFT_OUT]),
    ],
)
def test_devices_and_what_was_left_out(cell: Callable[..., Measured], fields: dict[str, Any], notes: list[str]) -> None:
    inputs = cell("en-de", "base")
    assert provenance_notes([replace(inputs, run=inputs.run.model_copy(update=fields))]) == notes
