"""Describes the computation behind a table's runs: dtypes, devices and their measured rates, torch version."""

from collections.abc import Callable, Iterable, Sequence

from pipeline.evaluation.costs import PAPER_SUSTAINED_FLOP_S, sustained_flop_s
from pipeline.records import Segment, TrainingRecord
from pipeline.settings import LONGEST_TOKENS
from pipeline.text.languages import NO_PAPER_BLEU
from workflows import paper
from workflows.quantities import rate_text
from workflows.tables.measured import Measured


def hardware(run: TrainingRecord, name: Callable[[str], str] = str) -> str:
    """Names a run's devices in order of use, and its dtypes; `name` maps a device's name to the one shown."""
    groups = [" and ".join(f"{each.count} × {name(each.name)}" for each in segment.devices) for segment in run.segments]
    return f"{', then '.join(dict.fromkeys(groups))}, {dtypes(run.segments)}"


def provenance_notes(models: Sequence[Measured]) -> list[str]:
    """Names all dtypes and devices behind the cells, and counts the dev pairs that were too long."""
    if not models:
        return []
    segments = [segment for model in models for segment in model.run.segments]
    counts: dict[str, list[int]] = {}
    for segment in segments:
        for device in segment.devices:
            counts.setdefault(device.name, []).append(device.count)
    devices = (f"{span(f'{min(used)}', f'{max(used)}')} × {name}" for name, used in counts.items())
    types = {model.cell.label: dtypes(model.run.segments) for model in models}
    note = (
        f"Trained in {dtypes(segments)} on {', '.join(devices)}, with torch "
        f"{_listed(segment.torch_version for segment in segments)}, "
        f"{_listed(segment.form for segment in segments)}; decoded in "
        f"{_listed(model.decoding.dtype for model in models)}."
    )
    if len(set(types.values())) > 1:
        listed = ", ".join(f"{label} {type_}" for label, type_ in types.items())
        note += f" Warning: differences between runs may be due to their dtypes: {listed}."
    left_out = {model.run.dev_left_out for model in models} - {0}
    longer = f"longer than {LONGEST_TOKENS} tokens are excluded from dev loss and perplexity."
    return [note, *(f"{number} dev pairs {longer}" for number in sorted(left_out))]


def reading_notes(models: Sequence[Measured]) -> list[str]:
    """Explains how to read scores, with the sacreBLEU signatures and dtypes of these cells."""
    tokenized, detokenized = paper.SAME_CHECKPOINT_BLEU
    undefined = ", ".join(dict.fromkeys(model.cell.pair.upper() for model in models if model.main.paper_bleu is None))
    return [
        "Moses BLEU is computed as the authors did: tokenized by Moses and case-sensitive, with ASCII quotation marks "
        "and German compounds split at hyphens. The printed rows are Moses BLEU.",
        f"sacreBLEU scores detokenized text. The same checkpoint has scored {tokenized} in Moses BLEU and "
        f"{detokenized} in sacreBLEU ({paper.SAME_CHECKPOINT_SOURCE}), so never compare the two.",
        *[f"{undefined}: {NO_PAPER_BLEU}"] * bool(undefined),
        *(f"sacreBLEU signature: {signature}" for signature in sorted({model.main.signature for model in models})),
        *provenance_notes(models),
    ]


def seeds_text(cells: Iterable[Sequence[Measured]]) -> str:
    """Says what a measured number is: one run, or a mean over seeds."""
    counts = sorted({len(of_cell) for of_cell in cells})
    if not counts or counts[-1] == 1:
        return "one run with one seed"
    seeds = span(f"{counts[0]}", f"{counts[-1]}")
    return f"the mean of {seeds} seeds ± their standard deviation; time and FLOP are means over its runs"


def rate_notes(models: Iterable[Measured]) -> list[str]:
    """Writes a note per device and dtype with a measured sustained rate, and one for devices without."""
    rates: dict[tuple[str, str], list[float]] = {}
    without: dict[str, None] = {}
    for model in models:
        for segment in model.run.segments:
            for device in segment.devices:
                rate = sustained_flop_s(device.name, device.matmul_flop_s)
                if rate is None:
                    without[device.name] = None
                elif rate[1] == "measured":
                    rates.setdefault((device.name, segment.dtype), []).append(rate[0])
    none = [f"No cost by the paper's method on {' or '.join(without)}: a CPU's rate depends on what else runs."]
    return none * bool(without) + [
        f"{name} is not among the paper's devices ({', '.join(PAPER_SUSTAINED_FLOP_S)}), so its sustained rate was "
        f"measured with a {dtype} matrix product before training: {span(*map(rate_text, (min(used), max(used))))} per "
        "device."
        for (name, dtype), used in rates.items()
    ]


def mfu(run: TrainingRecord) -> str:
    """Returns a run's share of the measured rates of its GPUs (model FLOP utilisation); nothing without rates."""
    at_rate = [each.count * (each.matmul_flop_s or 0) * part.train_s for part in run.segments for each in part.devices]
    return f" ({run.counted_flop / sum(at_rate):.0%} of the devices\u2019 measured rate)" if all(at_rate) else ""


def dtypes(segments: Iterable[Segment]) -> str:
    """Names the dtypes of a run."""
    return _listed(segment.dtype for segment in segments)


def _listed(texts: Iterable[str]) -> str:
    return " and ".join(sorted(set(texts)))


def span(least: str, most: str) -> str:
    """Writes a range, or the only value there is."""
    return least if least == most else f"{least} to {most}"
