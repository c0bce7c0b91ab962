"""What stands beneath a table about dtypes, devices and torch, and that it is on the screen and in the files."""

from collections.abc import Callable
from dataclasses import replace

from pipeline.store.figures import Stretch, StretchDevices
from workflows.tables.measurements import Translation
from workflows.tables.provenance import hardware, provenance_notes, rate_notes

Cell = Callable[..., Translation]
TOGETHER = Stretch((StretchDevices("NVIDIA H100", 8, 6e14),), 1, "bfloat16", "2.13.0", True, 80.0)
ALONE = replace(TOGETHER, devices=(StretchDevices("NVIDIA H100", 1, 6.2e14),), train_s=20.0)
ON_CPUS = Stretch((StretchDevices("Intel Xeon", 2, 5e10),), 1, "float32", "2.12.1", False, 100.0)


def trained_in(inputs: Translation, *stretches: Stretch) -> Translation:
    """Rewrites run.json as that of a training made of these stretches."""
    inputs.training.write(inputs.training.load().model_copy(update={"stretches": stretches}))
    return inputs


def note_of(*inputs: Translation) -> str:
    """Returns the line beneath the table."""
    (note,) = provenance_notes(inputs)
    return note


def test_one_line_names_type_devices_and_torch(cell: Cell) -> None:
    """The numbers of devices are those of all stretches; without a difference in type there is no warning."""
    assert note_of(trained_in(cell("en-de", "base"), TOGETHER, ALONE)) == (
        "Trained in bfloat16 on 1 to 8 × NVIDIA H100, with torch 2.13.0, compiled layers; decoded in float32."
    )
    assert provenance_notes([]) == []


def test_rows_that_differ_in_type_are_warned_of(cell: Cell) -> None:
    """The warning names the type of each training."""
    most = [trained_in(cell("en-de", name), TOGETHER) for name in ("base", "A1")]
    note = note_of(*most, trained_in(cell("en-de", "B1"), ON_CPUS))
    assert note.startswith(
        "Trained in bfloat16 and float32 on 8 × NVIDIA H100, 2 × Intel Xeon, with torch 2.12.1 and 2.13.0, "
        "compiled layers and layers not compiled; decoded in float32."
    )
    assert note.endswith("from their dtypes: EN-DE base bfloat16, EN-DE A1 bfloat16, EN-DE B1 float32.")


def test_rates_are_listed_by_device_and_type(cell: Cell) -> None:
    """The paper's devices need none; the others have the least and the greatest that was measured."""
    p100 = replace(ON_CPUS, devices=(StretchDevices("Tesla P100-SXM2", 8, 9e12),))
    cells = [trained_in(cell("en-de", "base"), TOGETHER, ALONE), trained_in(cell("en-de", "big"), p100, ON_CPUS)]
    bfloat16, float32 = rate_notes(cells)
    assert bfloat16.startswith("NVIDIA H100 is not among the paper's devices (K80, K40, M40, P100)")
    assert "with a bfloat16 matrix product before training: 600 to 620 TFLOPS per device" in bfloat16
    assert "with a float32 matrix product before training: 0.05 TFLOPS" in float32


def test_hardware_names_all_devices_in_order(cell: Cell) -> None:
    """Each group of devices stands once, in the order in which it came, with the dtype."""
    run = trained_in(cell("en-de", "base"), TOGETHER, ALONE, TOGETHER).training.load()
    assert hardware(run) == "8 × NVIDIA H100, then 1 × NVIDIA H100, bfloat16"
    assert hardware(trained_in(cell("en-de", "big"), ON_CPUS).training.load()) == "2 × Intel Xeon, float32"
