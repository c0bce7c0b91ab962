"""Says how the trainings behind a table were computed: dtypes, devices and their measured rates, torch."""

from collections.abc import Callable, Iterable, Sequence

from pipeline.evaluation.costs import PAPER_SUSTAINED_FLOP_S, sustained_flop_s
from pipeline.settings import LONGEST_TOKENS
from pipeline.store.figures import Stretch, TrainingFigures
from workflows.quantities import rate_text
from workflows.tables.measurements import TrainedModel


def hardware(run: TrainingFigures, name: Callable[[str], str] = str) -> str:
    """Names the devices of a training, in the order in which they took part, and its dtype.

    A device is called what `name` makes of the name that its driver gives it.
    """
    stretches = run.stretches
    groups = [
        " and ".join(f"{device.count} × {name(device.name)}" for device in stretch.devices) for stretch in stretches
    ]
    return f"{', then '.join(dict.fromkeys(groups))}, {_types(stretches)}"


def provenance_notes(cells: Sequence[TrainedModel]) -> list[str]:
    """Names in one line every dtype and device behind the cells, and in others how many dev pairs were too long."""
    if not cells:
        return []
    stretches = [stretch for cell in cells for stretch in cell.run.stretches]
    counts: dict[str, list[int]] = {}
    for stretch in stretches:
        for device in stretch.devices:
            counts.setdefault(device.name, []).append(device.count)
    devices = (f"{span(f'{min(used)}', f'{max(used)}')} × {name}" for name, used in counts.items())
    types = {cell.label: _types(cell.run.stretches) for cell in cells}
    note = (
        f"Trained in {_types(stretches)} on {', '.join(devices)}, with torch "
        f"{_listed(stretch.torch_version for stretch in stretches)}, "
        f"{_listed(stretch.form for stretch in stretches)}; decoded in "
        f"{_listed(cell.decoding.computed_in for cell in cells)}."
    )
    if len(set(types.values())) > 1:
        listed = ", ".join(f"{label} {type_}" for label, type_ in types.items())
        note += f" Warning: part of a difference between trainings may come from their dtypes: {listed}."
    left_out = {cell.run.dev_left_out for cell in cells} - {0}
    longer = f"longer than {LONGEST_TOKENS} tokens count in no dev loss or perplexity."
    return [note, *(f"{number} dev pairs {longer}" for number in sorted(left_out))]


def rate_notes(cells: Iterable[TrainedModel]) -> list[str]:
    """Writes a line for each device and dtype whose sustained rate was measured, and one for those that have none."""
    rates: dict[tuple[str, str], list[float]] = {}
    without: dict[str, None] = {}
    for cell in cells:
        for stretch in cell.run.stretches:
            for device in stretch.devices:
                rate = sustained_flop_s(device.name, device.matmul_flop_s)
                if rate is None:
                    without[device.name] = None
                elif rate[1] == "measured":
                    rates.setdefault((device.name, stretch.dtype), []).append(rate[0])
    none = [
        f"No cost by the paper's method on {' or '.join(without)}: a CPU's rate depends on what else runs on the "
        "machine."
    ]
    return none * bool(without) + [
        f"{name} is not among the paper's devices ({', '.join(PAPER_SUSTAINED_FLOP_S)}), so its sustained rate was "
        f"measured with a {dtype} matrix product before training: {span(*map(rate_text, (min(used), max(used))))} per "
        "device."
        for (name, dtype), used in rates.items()
    ]


def _types(stretches: Iterable[Stretch]) -> str:
    return _listed(stretch.dtype for stretch in stretches)


def _listed(texts: Iterable[str]) -> str:
    return " and ".join(sorted(set(texts)))


def span(least: str, most: str) -> str:
    """Writes a range, or the only value there is."""
    return least if least == most else f"{least} to {most}"
