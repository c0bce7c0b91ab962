"""Estimates what a table will take before it is run: disk, floating-point operations, hours. Part of `--plan`.

    console.print(render(forecast(profile, planned_of(translations), find(8, "h100"), store)))

Operations are counted as in a training, over sentence pairs whose lengths are drawn from distributions measured on real
text and which are cut into micro-batches as in a training. Nothing is read or downloaded.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from model.flops import training_flop
from model.parameters import count
from pipeline.corpora import embedded, files, multi30k, wmt14
from pipeline.corpora.amount import Amount
from pipeline.corpora.synthetic.lengths import LENGTHS, draw_lengths
from pipeline.evaluation.costs import sustained_flop_s
from pipeline.parsing import treebank
from pipeline.settings import Settings, TrainingSettings
from pipeline.text.batching import by_length, cut
from pipeline.text.segmentation import id_type
from workflows.forecast.hardware import CPU_WIDEST, Hardware
from workflows.forecast.planned import Planned
from workflows.profiles import Profile
from workflows.quantities import duration, flop_text

FLOAT32_BYTES = 4
OFFSETS_BYTES = 8
"""Arrow's offsets for the two token lists of a pair."""
ADAM_MOMENTS = 2
"""Arrays of the size of the weights beside those in the last checkpoint for recovery."""
MODELS = 2
"""Copies of the averaged model: one in the store, one in MLflow."""
TEXT_OF_LENGTHS = {"multi30k": "Multi30k's captions", "wmt14": "WMT14's text"}


@dataclass(frozen=True)
class TextForecast:
    """Sizes of a language pair's training text; a field is None if it is not known before the text is read."""

    pair: str
    lengths: str
    """Text whose measured lengths stand in for this one's: a key of `pipeline.corpora.synthetic.lengths.LENGTHS`."""
    train_pairs: int | None
    downloads_bytes: int | None
    """Size of the downloads, in part estimated, without those that an earlier pair needs too."""
    kept_bytes: float | None
    """Size of the plain text, as read and cleaned, and of the token ids."""

    @property
    def disk_bytes(self) -> float:
        """Total of the sizes that are known."""
        return (self.downloads_bytes or 0) + (self.kept_bytes or 0)


@dataclass(frozen=True)
class TrainingForecast:
    """What each of some trainings takes."""

    planned: Planned
    parameters: int
    devices: int
    """Devices that the training can use."""
    dtype: str
    flop_s: float
    """Rate of one device."""
    fraction: float
    """Share of that rate that the training is assumed to reach."""
    device_tokens: int
    """Tokens on either side of an update that one device gets, at most."""
    counted_flop: float
    seconds: float
    """Duration if the rate of the devices is the limit."""
    host_bound_s: float
    """Duration if the host, which launches the kernels of a GPU, is the limit; `seconds` where it is not."""
    paper_way_flop: float
    """Cost as the paper computes it, of `seconds`."""
    disk_bytes: int
    """What the finished training occupies: the checkpoints that are kept, one for recovery, and the averaged model."""


@dataclass(frozen=True)
class Forecast:
    """The forecast for a whole table."""

    hardware: Hardware
    texts: list[TextForecast]
    trainings: list[TrainingForecast]
    store: Path
    free_bytes: int
    """Free space on the disk of the store."""

    def total(self, figure: str) -> float:
        """Returns the sum of a figure of all trainings, each as often as it is run: one after the other, for a time."""
        return sum(one.planned.times * float(getattr(one, figure)) for one in self.trainings)

    @property
    def disk_bytes(self) -> float:
        """Total of the sizes that are known."""
        return self.total("disk_bytes") + sum(text.disk_bytes for text in self.texts)


def forecast(profile: Profile, planned: Sequence[Planned], hardware: Hardware, store: Path) -> Forecast:
    """Forecasts trainings on language pairs of `profile`, including any that are in the store already."""
    folder = store.absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return Forecast(
        hardware,
        _texts(profile, list(dict.fromkeys(one.pair for one in planned))),
        [_training(one, _lengths_of(profile.for_pair(one.pair).corpora[one.pair]), hardware) for one in planned],
        folder,
        shutil.disk_usage(existing).free,
    )


def update_flop(training: TrainingSettings, lengths: str) -> float:
    """Returns the mean number of operations in one update of text of such lengths (a key of LENGTHS)."""
    n_micro_batches = _micro_batches(lengths, training.plan.micro_batch_tokens)
    return training_flop(training.model, *_drawn(lengths)) * training.micro_batches / n_micro_batches


def _training(planned: Planned, lengths: str, hardware: Hardware) -> TrainingForecast:
    training = planned.training
    dtype, flop_s = hardware.flop_s(training.dtype)
    most = training.workers if isinstance(training.workers, int) else training.workers[1]
    devices = min(hardware.devices, training.micro_batches, most or hardware.devices)
    counted_flop = training.updates * update_flop(training, lengths)
    # The other devices wait for the one with the most micro-batches of an update.
    most_micro_batches = -(-training.micro_batches // devices)
    longest_share = most_micro_batches / training.micro_batches
    fraction = hardware.fraction(training.model.d_model)
    seconds = counted_flop * longest_share / (flop_s * fraction)
    launching_s = training.updates * most_micro_batches * hardware.host_s(training.model.n_layers)
    weights_bytes = FLOAT32_BYTES * count(training.model)
    return TrainingForecast(
        planned=planned,
        parameters=count(training.model),
        devices=devices,
        dtype=dtype,
        flop_s=flop_s,
        fraction=fraction,
        device_tokens=round(training.budget_tokens * longest_share),
        counted_flop=counted_flop,
        seconds=seconds,
        host_bound_s=max(seconds, launching_s),
        paper_way_flop=seconds * devices * sustained_flop_s(hardware.name, flop_s)[0],
        disk_bytes=(len(training.kept_updates) + 1 + ADAM_MOMENTS + MODELS) * weights_bytes,
    )


def _texts(profile: Profile, pairs: Sequence[str]) -> list[TextForecast]:
    texts: list[TextForecast] = []
    known: set[str] = set()
    for pair in pairs:
        of_pair = profile.for_pair(pair)
        corpus = of_pair.corpora[pair]
        amount, lengths = _amount(corpus), _lengths_of(corpus)
        new = {place: size for place, size in amount.downloads.items() if place not in known}
        known |= new.keys()
        sizes = [size for size in new.values() if size is not None]
        kept_bytes = None
        if amount.train_pairs and amount.text_bytes:
            tokens = sum(float(side.mean()) for side in _drawn(lengths))
            pair_bytes = OFFSETS_BYTES + id_type(of_pair.vocabulary.size).itemsize * tokens
            kept_bytes = 2 * amount.text_bytes + amount.train_pairs * pair_bytes
        downloads_bytes = sum(sizes) if len(sizes) == len(new) else None
        texts.append(TextForecast(pair, lengths, amount.train_pairs, downloads_bytes, kept_bytes))
    return texts


def _amount(corpus: Settings) -> Amount:
    match corpus:
        case embedded.EmbeddedSettings():
            return embedded.amount(corpus)
        case multi30k.Multi30kSettings():
            return multi30k.amount(corpus)
        case wmt14.Wmt14Settings():
            return wmt14.amount(corpus)
        case files.FilesSettings():
            return files.amount(corpus)
        case treebank.TreebankSettings():
            return Amount(None, None)
    raise TypeError(f"no forecast for {type(corpus).__name__}")


def _lengths_of(corpus: Settings) -> str:
    """Chooses measured lengths: generated text is about as short as captions, a user's is assumed to be like WMT14."""
    short = isinstance(corpus, embedded.EmbeddedSettings | multi30k.Multi30kSettings)
    return "multi30k" if short else "wmt14"


@cache
def _drawn(lengths: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draws source and target lengths, in tokens, of enough pairs for a dense plan."""
    source, target = draw_lengths(LENGTHS[lengths], LENGTHS[lengths].pairs, np.random.default_rng(1))
    return source, target


@cache
def _micro_batches(lengths: str, limit_tokens: int) -> int:
    """Returns the number of micro-batches into which the drawn pairs are cut."""
    source, target = _drawn(lengths)
    rows = by_length(source, target, limit_tokens)
    return len(cut(source[rows], target[rows], limit_tokens)) - 1


def render(forecast: Forecast) -> RenderableType:
    """Renders the whole forecast, for a terminal of at least 100 columns."""
    hardware = forecast.hardware
    number = f"{hardware.devices} × " if hardware.kind == "gpu" else ""
    rates = {f"{_rate(one.flop_s)} in {one.dtype}": None for one in forecast.trainings}
    origin = "published" if hardware.gpu else "measured now"
    each = " each" if hardware.devices > 1 else ""
    heading = f"Forecast for {number}{hardware.name}: {' or '.join(rates)}{each}, {origin}"
    bullets = Table.grid(padding=(0, 1))
    for note in notes(forecast):
        bullets.add_row("·", Text(note, style="dim"))
    disk = f"disk: about {_size(forecast.disk_bytes)}; {forecast.store} has {_size(forecast.free_bytes)} free"
    return Group("", Text(heading, style="bold"), "", _table(forecast), "", Text(disk), bullets)


def _table(forecast: Forecast) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    time = "time, not\nmeasured" if forecast.hardware.kind == "gpu" else "time"
    table.add_column("training", header_style="bold")
    for heading in ("parameters", "FLOP,\ncounted", "FLOP,\npaper's way", time, "disk"):
        table.add_column(heading, header_style="bold", justify="right")
    for one in forecast.trainings:
        seeds = f", {one.planned.times} seeds, each" if one.planned.times > 1 else ""
        table.add_row(
            one.planned.name + seeds,
            f"{one.parameters / 1e6:.1f} M",
            flop_text(one.counted_flop),
            flop_text(one.paper_way_flop),
            _range(one.seconds, one.host_bound_s),
            _size(one.disk_bytes),
        )
    flop = flop_text(forecast.total("counted_flop")), flop_text(forecast.total("paper_way_flop"))
    time, disk = _range(forecast.total("seconds"), forecast.total("host_bound_s")), _size(forecast.total("disk_bytes"))
    table.add_row("total", "", *flop, time, disk, style="bold")
    return table


def notes(forecast: Forecast) -> list[str]:
    """Explains what the figures mean and which of them are assumptions."""
    hardware, trainings = forecast.hardware, forecast.trainings
    lengths = " and ".join(dict.fromkeys(TEXT_OF_LENGTHS[text.lengths] for text in forecast.texts))
    fractions = " and ".join(f"{fraction:.0%}" for fraction in sorted({one.fraction for one in trainings}))
    rates = sorted({_rate(sustained_flop_s(hardware.name, one.flop_s)[0]) for one in trainings})
    if hardware.kind == "gpu":
        tokens = " or ".join(f"{tokens:,}" for tokens in sorted({one.device_tokens for one in trainings}))
        layers = {one.planned.training.model.n_layers for one in trainings}
        launching = " or ".join(f"{1e3 * hardware.host_s(n):.0f}" for n in sorted(layers))
        assumed = (
            f"Times are assumptions, not measurements: that trainings reach {fractions} of the rate with the {tokens} "
            "tokens a side that one GPU gets of an update (this project's targets for the paper's base and big on one "
            "GPU with 25,000 tokens; with fewer a GPU reaches less, and narrower models do too), and that adding "
            f"gradients between GPUs takes no time. Where two times stand, the second is what the host alone needs: "
            f"launching the kernels of a micro-batch is taken to need {launching} ms, not measured either; compiled "
            "layers launch fewer. The paper's way is computed from the first."
        )
    else:
        assumed = (
            f"Times assume that trainings reach {fractions} of the rate, as models of such widths did when measured "
            f"on two cores; no model wider than {CPU_WIDEST} was measured."
        )
    lines = [
        "FLOP counts the matrix products that real tokens need, in updates filled with pairs as long as those of "
        f"{lengths}. The paper's way: time × devices × {' and '.join(rates)}.",
        f"{assumed} Trainings are assumed to run one after the other. Preparing text, validation, decoding and scoring "
        "are left out; whatever is in the store already is included.",
        *map(_text_note, forecast.texts),
        *checkpoint_notes(trainings),
    ]
    if used := {one.devices for one in trainings if one.devices < hardware.devices}:
        lines.append(
            f"Of the {hardware.devices} devices a training uses {' or '.join(map(str, sorted(used)))}: it cannot use "
            "more than its micro_batches and workers."
        )
    return lines


def _text_note(text: TextForecast) -> str:
    if text.kept_bytes is None:
        return f"Text {text.pair}: its size is not known before it is read, and left out."
    download = "" if text.downloads_bytes == 0 else f"; download: {_about(text.downloads_bytes)}"
    return f"Text {text.pair}: {text.train_pairs:,} pairs, {_about(text.kept_bytes)} with token ids{download}."


def checkpoint_notes(trainings: Sequence[TrainingForecast]) -> list[str]:
    """Says which checkpoints each training keeps and which of them are averaged, once for those that do the same."""
    alike: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for one in trainings:
        alike.setdefault((one.planned.training.kept_updates, one.planned.averaged), []).append(one.planned.name)
    lines = []
    for (kept, averaged), names in alike.items():
        used = "all are" if averaged == len(kept) else "none is" if averaged == 1 else f"the last {averaged} are"
        number = f"{len(kept)} checkpoints stay" if len(kept) > 1 else "one checkpoint stays"
        updates = f"update{'s' * (len(kept) > 1)} {_listed(kept)}"
        lines.append(f"{', '.join(names)}: {number}, of {updates}; {used} averaged.")
    return lines


def _listed(updates: Sequence[int]) -> str:
    """Lists updates; of more than six, the first two and the last."""
    shown = [f"{update:,}" for update in updates]
    return ", ".join(shown) if len(shown) <= 6 else f"{', '.join(shown[:2])} ... {shown[-1]}"


def _range(fastest_s: float, slowest_s: float) -> str:
    """Formats a duration, or the range from the devices' rate as the limit to the host."""
    fastest, slowest = duration(fastest_s), duration(slowest_s)
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
