"""Renders a forecast for a terminal: the text, the trainings, their totals, and what was assumed."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.evaluation.costs import sustained_flop_s
from workflows.console.quantities import duration, flop_text
from workflows.forecast.estimate import Forecast, TextForecast, TrainingForecast
from workflows.forecast.hardware import CPU_WIDEST

TEXT_OF_LENGTHS = {"multi30k": "Multi30k's captions", "wmt14": "WMT14's text"}
UNKNOWN = "not known before the text is read"


def render(forecast: Forecast) -> RenderableType:
    """Renders the whole forecast, for a terminal of at least 100 columns."""
    disk = f"disk: {_about(forecast.disk_bytes)} in total"
    if any(text.text_bytes is None for text in forecast.texts):
        disk += " without the text"
    disk += f"; {forecast.store} has {_size(forecast.free_bytes)} free"
    bullets = Table.grid(padding=(0, 1))
    for note in notes(forecast):
        bullets.add_row("·", Text(note, style="dim"))
    return Group("", _hardware(forecast), "", _texts(forecast), "", _trainings(forecast), "", Text(disk), bullets)


def notes(forecast: Forecast) -> list[str]:
    """Explains what the figures mean and which of them are assumptions."""
    hardware, trainings = forecast.hardware, forecast.trainings
    lengths = " and ".join(dict.fromkeys(TEXT_OF_LENGTHS[text.lengths] for text in forecast.texts))
    fractions = " and ".join(f"{fraction:.0%}" for fraction in sorted({one.fraction for one in trainings}))
    rates = {sustained_flop_s(hardware.name, one.flop_s) for one in trainings}
    sustained = " and ".join(
        f"{_rate(rate)}{' (its footnote 5)' * (source == 'paper')}" for rate, source in sorted(rates)
    )
    if hardware.kind == "gpu":
        tokens = " or ".join(f"{tokens:,}" for tokens in sorted({one.device_tokens for one in trainings}))
        assumed = (
            f"Times are assumptions, not measurements: that trainings reach {fractions} of the rate with the {tokens} "
            "tokens a side that one GPU gets of an update (this project's targets for the paper's base and big on one "
            "GPU with 25,000 tokens; with fewer a GPU reaches less, and narrower models do too; how much less has not "
            "been measured), and that adding gradients between GPUs takes no time."
        )
        launching = " or ".join(f"{1e3 * hardware.host_s(n):.0f}" for n in sorted({one.n_layers for one in trainings}))
        assumed += (
            f" Where two times stand, the second is what the host alone needs: launching the kernels of a "
            f"micro-batch is taken to need {launching} ms, not measured either; compiled layers launch fewer. The "
            "paper's way is computed from the first."
        )
    else:
        assumed = (
            f"Times assume that trainings reach {fractions} of the rate, as models of such widths did when measured "
            f"on two cores; no model wider than {CPU_WIDEST} was measured."
        )
    lines = [
        "FLOP counts the matrix products that real tokens need, in updates filled with pairs assumed to be as long as "
        f"those measured on {lengths}. The paper's way: time × devices × {sustained}.",
        f"{assumed} Trainings are assumed to run one after the other. Preparing text, validation, decoding and scoring "
        "are left out; whatever is in the store already is included.",
        *checkpoint_notes(trainings),
        "The disk space of a training holds the checkpoints that are kept, one more with Adam's moments, and the "
        "averaged model; two more with moments are needed while it trains. Text sizes are estimated from the bytes and "
        "tokens per pair of a sample.",
    ]
    if any(one.printed_duration for one in trainings):
        lines.append("The paper prints one cost and one time for base and for big; they stand beside both pairs here.")
    if used := {one.devices for one in trainings if one.devices < hardware.devices}:
        lines.append(
            f"Of the {hardware.devices} devices a training uses {' or '.join(map(str, sorted(used)))}: it cannot use "
            "more than its micro_batches and workers."
        )
    return lines


def checkpoint_notes(trainings: Sequence[TrainingForecast]) -> list[str]:
    """Says which checkpoints each training keeps and which of them are averaged, once for those that do the same."""
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for one in trainings:
        alike.setdefault((one.kept_updates, one.averaged_updates), []).append(one.name)
    notes = []
    for (kept, averaged), names in alike.items():
        used = "all are" if averaged == kept else "none is" if len(averaged) == 1 else f"the last {len(averaged)} are"
        number = f"{len(kept)} checkpoints stay" if len(kept) > 1 else "one checkpoint stays"
        notes.append(
            f"{', '.join(names)}: {number}, of update{'s' * (len(kept) > 1)} {_listed(kept)}; {used} averaged."
        )
    return notes


def _listed(updates: Sequence[int]) -> str:
    """Lists updates; of more than six, the first two and the last."""
    shown = [f"{update:,}" for update in updates]
    return ", ".join(shown) if len(shown) <= 6 else f"{', '.join(shown[:2])} ... {shown[-1]}"


def _hardware(forecast: Forecast) -> Text:
    """Renders the number of devices, their name and their rates."""
    hardware = forecast.hardware
    number = f"{hardware.devices} × " if hardware.kind == "gpu" else ""
    rates = {f"{_rate(one.flop_s)} in {one.dtype}": None for one in forecast.trainings}
    origin = "published" if hardware.gpu else "measured now"
    each = " each" if hardware.devices > 1 else ""
    return Text(f"Forecast for {number}{hardware.name}: {' or '.join(rates)}{each}, {origin}", style="bold")


def _columns(*headings: str) -> Table:
    """Returns an empty table with bold headings and no lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, header_style="bold")
    return table


def _texts(forecast: Forecast) -> Table:
    table = _columns("text", "pairs", "download", "as read", "cleaned", "token ids")
    for text in forecast.texts:
        if text.train_pairs is None:
            table.add_row(text.pair, UNKNOWN, *[""] * 4)
            continue
        size = _about(text.text_bytes)
        table.add_row(text.pair, f"{text.train_pairs:,}", _download(text), size, size, _about(text.ids_bytes))
    return table


def _download(text: TextForecast) -> str:
    if not text.downloads_bytes:
        return "not known" if text.downloads_bytes is None else "none"
    return _about(text.downloads_bytes) if text.is_download_estimated else _size(text.downloads_bytes)


def _trainings(forecast: Forecast) -> Table:
    time = "time, not\nmeasured" if forecast.hardware.kind == "gpu" else "time"
    headings = "parameters", "FLOP,\ncounted", "FLOP,\npaper's way", "printed", time, "printed,\n8 P100", "disk"
    table = _columns("training", *headings)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in forecast.trainings:
        table.add_row(*_training(one))
    flop = flop_text(forecast.counted_flop), flop_text(forecast.paper_way_flop)
    disk_bytes = sum(one.times * one.disk_bytes for one in forecast.trainings)
    table.add_row("total", "", *flop, "", _time(forecast), "", _size(disk_bytes), style="bold")
    return table


def _training(one: TrainingForecast) -> list[str]:
    return [
        one.name + (f", {one.times} seeds, each" if one.times > 1 else ""),
        f"{one.parameters / 1e6:.1f} M",
        flop_text(one.counted_flop),
        flop_text(one.paper_way_flop),
        "" if one.printed_cost_flop is None else flop_text(one.printed_cost_flop),
        _time(one),
        one.printed_duration,
        _size(one.disk_bytes),
    ]


def _time(of: Forecast | TrainingForecast) -> str:
    """Formats a duration, or the range from the devices' rate as the limit to the host."""
    fastest, slowest = duration(of.seconds), duration(of.host_bound_s)
    return fastest if fastest == slowest else f"{fastest}\nto {slowest}"


def _rate(flop_s: float) -> str:
    """Formats a rate, e.g. 989 TFLOP/s or 190 GFLOP/s."""
    return f"{flop_s / 1e12:,.4g} TFLOP/s" if flop_s >= 1e12 else f"{flop_s / 1e9:.0f} GFLOP/s"


def _size(count_bytes: float) -> str:
    """Formats a size, e.g. 1.7 GB, 24 MB or 1.8 MB."""
    if count_bytes >= 1e9:
        return f"{count_bytes / 1e9:,.1f} GB"
    return f"{count_bytes / 1e6:.0f} MB" if count_bytes >= 1e7 else f"{count_bytes / 1e6:.1f} MB"


def _about(count_bytes: float | None) -> str:
    """Formats an estimated size, or "not known"."""
    return "not known" if count_bytes is None else f"about {_size(count_bytes)}"
