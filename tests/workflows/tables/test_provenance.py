"""The notes below a table on dtypes, devices and torch."""

from collections.abc import Callable
from dataclasses import replace

from pipeline.store.records import Segment, SegmentDevices
from workflows.tables.measurements import Translation
from workflows.tables.provenance import provenance_notes

Cell = Callable[..., Translation]
TOGETHER = Segment((SegmentDevices("NVIDIA H100", 8, 6e14),), 1, "bfloat16", "2.13.0", True, 80.0)
ALONE = replace(TOGETHER, devices=(SegmentDevices("NVIDIA H100", 1, 6.2e14),), train_s=20.0)


def test_one_line_names_type_devices_and_torch(cell: Cell) -> None:
    """The numbers of devices are those of all segments. If dtypes do not differ, there is no warning."""
    inputs = cell("en-de", "base")
    inputs.training.write(inputs.training.load().model_copy(update={"segments": (TOGETHER, ALONE)}))
    assert provenance_notes([inputs]) == [
        "Trained in bfloat16 on 1 to 8 × NVIDIA H100, with torch 2.13.0, compiled layers; decoded in float32."
    ]
    assert provenance_notes([]) == []


def test_dev_pairs_that_were_too_long_are_counted(cell: Cell) -> None:
    assert len(provenance_notes([cell("en-de", "base")])) == 1
    inputs = cell("en-fr", "base")
    inputs.training.write(inputs.training.load().model_copy(update={"dev_left_out": 2}))
    assert provenance_notes([inputs])[1:] == [
        "2 dev pairs longer than 1024 tokens are excluded from dev loss and perplexity."
    ]


def test_the_form_of_the_batches_is_named(cell: Cell) -> None:
    inputs = cell("en-de", "base")
    packed = replace(TOGETHER, packed=True, captured=True)
    inputs.training.write(inputs.training.load().model_copy(update={"segments": (packed,)}))
    assert "compiled layers, packed batches, a CUDA graph; decoded" in provenance_notes([inputs])[0]
