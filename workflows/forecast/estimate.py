"""Forecasts a table's disk use, floating-point operations and hours for `--plan`.

    console.print(forecast_text(profile, translations, None, "h100", store, table_step))

Operations are counted like in a run, over micro-batches of sentence pairs whose lengths are drawn from distributions
measured on real text. Nothing is read or downloaded.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from model.flops import count_parameters, training_flop
from pipeline.corpora import embedded, multi30k
from pipeline.corpora.lengths import drawn
from pipeline.environment import usable_cpus
from pipeline.settings import Settings, TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.text.batching import by_length, micro_batch_bounds
from pipeline.text.segmentation import id_type
from workflows.engine.dag import Step, in_order, to_step
from workflows.forecast.hardware import CPU_WIDEST, Hardware, find
from workflows.profiles.profile import Profile
from workflows.quantities import duration, flop_text, rate_text
from workflows.tables.measurements import TrainedModel

OFFSETS_BYTES = 8
"""The size of Arrow's offsets for the two token lists of a pair."""
COPIES = 5
"""Arrays of the weights' size beside the kept checkpoints: three in the recovery checkpoint, with Adam's two, and two
averaged models."""
TRAINING_KINDS = {"training.train": "run on other text", "attention_training.train": "run of an attention function"}
"""Training stages outside the forecast, by their names in the notes."""
TEXT_OF_LENGTHS = {"multi30k": "Multi30k's captions", "wmt14": "WMT14's text"}


@dataclass(frozen=True)
class Planned:
    """A number of runs, `times`, that differ only in their seeds."""

    name: str
    pair: str
    training: TrainingSettings
    times: int = 1


@dataclass(frozen=True)
class TextForecast:
    """Sizes of a language pair's training text; a field is None if unknown before the text is read."""

    pair: str
    lengths: str
    """The text with measured lengths that stands in for it: a key of `pipeline.corpora.lengths.LENGTHS`."""
    train_pairs: int | None
    downloads_bytes: int | None
    """Size of the downloads, in part estimated, without those of earlier pairs."""
    kept_bytes: float | None
    """Size of the plain text, as read and cleaned, and of the token ids."""


@dataclass(frozen=True)
class TrainingForecast:
    """The forecast for a single run."""

    planned: Planned
    parameters: int
    devices: int
    """The number of devices that the run can use."""
    dtype: str
    flop_s: float
    """Rate of one device; for CPUs, of the run's threads."""
    counted_flop: float
    seconds: float | None
    """None if the achieved fraction of the rate is unknown for its width."""
    disk_bytes: int
    """Disk use of a finished run: kept checkpoints, recovery checkpoint and averaged models."""


@dataclass(frozen=True)
class Forecast:
    """The forecast for a whole table."""

    hardware: Hardware
    texts: list[TextForecast]
    trainings: list[TrainingForecast]
    store: Path
    free_bytes: int
    """Free space on the disk of the store."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """The number of runs outside the forecast, by kind."""

    def total(self, name: str) -> float:
        """Returns the sum of a field over all runs; for a duration, as if they ran one after another."""
        return sum(training.planned.times * float(getattr(training, name) or 0) for training in self.trainings)

    @property
    def disk_bytes(self) -> float:
        """The total of the known sizes."""
        texts = sum((text.downloads_bytes or 0) + (text.kept_bytes or 0) for text in self.texts)
        return self.total("disk_bytes") + texts


def forecast_text(
    profile: Profile,
    models: Iterable[TrainedModel],
    gpus: int | None,
    gpu: str | None,
    store: Path,
    targets: Sequence[Step[Artifact]],
) -> RenderableType | None:
    """Forecasts the runs of some models on the named hardware or this machine's (`find`), for a terminal.

    Excludes runs on other text than the profile's; returns None if no others are left. Other runs behind `targets` are
    only counted. Raises UserError for unknown hardware.
    """
    of_profile = [model for model in models if model.pair in profile.corpora]
    planned = planned_of(of_profile)
    if not planned and not gpu:
        return None
    hardware = find(gpus, gpu, planned[0].training.device if planned else "auto")
    known = {to_step(model.training) for model in of_profile}
    others = (step.stage.name for step in in_order(targets) if step.stage.resumes and step not in known)
    left_out = Counter(TRAINING_KINDS.get(name, name) for name in others)
    return render(replace(forecast(profile, planned, hardware, store), left_out=left_out)) if planned else None


def planned_of(models: Iterable[TrainedModel]) -> list[Planned]:
    """Returns the distinct runs of some models, grouped if they differ only in their seeds."""
    times: Counter[tuple[str, str, str, TrainingSettings]] = Counter()
    for model in {to_step(model.training).fingerprint: model for model in models}.values():
        name = model.model if model.model.startswith(model.pair) else f"{model.pair} {model.model}"
        dataset, *_ = to_step(model.training).arguments
        times[name, model.pair, dataset.fingerprint, model.settings.model_copy(update={"seed": 1})] += 1
    return [Planned(name, pair, training, n) for (name, pair, _, training), n in times.items()]


def forecast(profile: Profile, planned: Sequence[Planned], hardware: Hardware, store: Path) -> Forecast:
    """Forecasts runs on language pairs of `profile`, including finished ones."""
    folder = store.absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    return Forecast(
        hardware,
        _texts(profile, list(dict.fromkeys(training.pair for training in planned))),
        [
            _training(training, _lengths_of(profile.for_pair(training.pair).corpora[training.pair]), hardware)
            for training in planned
        ],
        folder,
        shutil.disk_usage(existing).free,
    )


def update_flop(training: TrainingSettings, lengths: str) -> float:
    """Returns the mean FLOP of an update on text of these `lengths`, a key of LENGTHS."""
    n_micro_batches = _micro_batches(lengths, training.micro_batch_tokens)
    return training_flop(training.model, *drawn(lengths)) * training.micro_batches / n_micro_batches


def threads_of(training: TrainingSettings, n_cores: int) -> int:
    """Returns the total threads of a run's workers on CPUs, at most one per core."""
    return min(n_cores, training.threads * min(training.micro_batches, training.worker_bounds[1] or n_cores))


def _training(planned: Planned, lengths: str, hardware: Hardware) -> TrainingForecast:
    training = planned.training
    dtype, flop_s = hardware.flop_s(training.dtype, threads_of(training, usable_cpus()))
    devices = min(hardware.devices, training.micro_batches, training.worker_bounds[1] or hardware.devices)
    flop = update_flop(training, lengths)
    # All devices wait for the one with the most micro-batches of an update.
    most = -(-training.micro_batches // devices)
    is_transformer = training.model.architecture == "transformer"
    fraction = hardware.fraction(training.model.d_model) if is_transformer else None
    update_s = flop * most / training.micro_batches / (flop_s * fraction) if fraction else None
    parameters = count_parameters(training.model)
    return TrainingForecast(
        planned=planned,
        parameters=parameters,
        devices=devices,
        dtype=dtype,
        flop_s=flop_s,
        counted_flop=training.updates * flop,
        seconds=training.updates * update_s if update_s else None,
        disk_bytes=(len(training.kept_updates) + COPIES) * 4 * parameters,
    )


def _texts(profile: Profile, pairs: Sequence[str]) -> list[TextForecast]:
    texts: list[TextForecast] = []
    known: set[str] = set()
    for pair in pairs:
        of_pair = profile.for_pair(pair)
        corpus = of_pair.corpora[pair]
        amount, lengths = corpus.amount(), _lengths_of(corpus)
        new = {place: size for place, size in amount.downloads.items() if place not in known}
        known |= new.keys()
        sizes = [size for size in new.values() if size is not None]
        kept_bytes = None
        if amount.train_pairs and amount.text_bytes:
            tokens = sum(float(side.mean()) for side in drawn(lengths))
            pair_bytes = OFFSETS_BYTES + id_type(of_pair.vocabulary.size).itemsize * tokens
            kept_bytes = 2 * amount.text_bytes + amount.train_pairs * pair_bytes
        downloads_bytes = sum(sizes) if len(sizes) == len(new) else None
        texts.append(TextForecast(pair, lengths, amount.train_pairs, downloads_bytes, kept_bytes))
    return texts


def _lengths_of(corpus: Settings) -> str:
    """Chooses measured lengths: Multi30k's captions for generated text, which is about as short, else WMT14's."""
    return "multi30k" if isinstance(corpus, embedded.EmbeddedSettings | multi30k.Multi30kSettings) else "wmt14"


@cache
def _micro_batches(lengths: str, limit_tokens: int) -> int:
    """Returns the number of micro-batches of the drawn pairs."""
    source, target = drawn(lengths)
    rows = by_length(source, target, np.arange(len(source)), limit_tokens)
    return len(micro_batch_bounds(source[rows], target[rows], limit_tokens)) - 1


def render(forecast: Forecast) -> RenderableType:
    """Renders the whole forecast, for a terminal of at least 100 columns."""
    hardware = forecast.hardware
    number, each = f"{hardware.devices} × " * (hardware.kind == "gpu"), " each" * (hardware.devices > 1)
    rates = {f"{rate_text(training.flop_s)} in {training.dtype}": None for training in forecast.trainings}
    origin = "published" if hardware.gpu else "measured now"
    heading = f"Forecast for {number}{hardware.name}: {' or '.join(rates)}{each}, {origin}"
    bullets = Table.grid(padding=(0, 1))
    for note in notes(forecast):
        bullets.add_row("·", Text(note, style="dim"))
    sizes = f"about {_size(forecast.disk_bytes)}; {forecast.store} has {_size(forecast.free_bytes)} free"
    disk = Text(f"disk: {sizes}")
    if forecast.disk_bytes > forecast.free_bytes:
        warning = f"WARNING: not enough disk space, unless some of this is already there: {sizes}; free some space"
        disk = Text(f"{warning} or choose another --store", style="bold red")
    return Group("", Text(heading, style="bold"), "", _table(forecast), "", disk, bullets)


def _table(forecast: Forecast) -> Table:
    time = "time, not\nmeasured" if forecast.hardware.kind == "gpu" else "time"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("run", "parameters", "FLOP", time, "disk"):
        table.add_column(heading, justify="left" if heading == "run" else "right")
    for run in forecast.trainings:
        parameters, time = f"{run.parameters / 1e6:.1f} M", "" if run.seconds is None else duration(run.seconds)
        name = run.planned.name + (f", {run.planned.times} seeds, each" if run.planned.times > 1 else "")
        table.add_row(name, parameters, flop_text(run.counted_flop), time, _size(run.disk_bytes))
    time, disk = duration(forecast.total("seconds")), _size(forecast.total("disk_bytes"))
    if any(run.seconds is None for run in forecast.trainings):
        time = f"more than {time}" if forecast.total("seconds") else ""
    table.add_row("total", "", flop_text(forecast.total("counted_flop")), time, disk, style="bold")
    return table


def notes(forecast: Forecast) -> list[str]:
    """Explains the values and their assumptions."""
    hardware, models = forecast.hardware, [training.planned.training.model for training in forecast.trainings]
    lengths = " and ".join(dict.fromkeys(TEXT_OF_LENGTHS[text.lengths] for text in forecast.texts))
    shares = {share for model in models if (share := hardware.fraction(model.d_model))}
    fractions = " and ".join(f"{share:.0%}" for share in sorted(shares))
    if hardware.kind == "gpu":
        assumed = (
            f"Times assume {fractions} of the rate, measured for base on one H200 and estimated for big "
            "(docs/cluster.md), without the exchange of gradients."
        )
    else:
        assumed = (
            f"Times assume {fractions} of the rate, measured for models of these widths on two cores and estimated "
            f"for widths above {CPU_WIDEST}."
        )
    lines = [f"FLOP are those of the matrix products on real tokens, without padding, for pairs as long as {lengths}."]
    if shares:
        lines.append(f"{assumed} The total assumes one run after another.")
    narrowest = min(hardware.fractions)
    if any(model.d_model < narrowest for model in models):
        lines.append(f"No times for models narrower than {narrowest}: their fraction of the rate is unknown.")
    if any(model.architecture != "transformer" for model in models):
        lines.append("No times for recurrent and convolutional models, which were not measured.")
    lines.append(
        "Includes stages already in the store; excludes preparing text, validation, decoding, scoring, timing layers."
    )
    if forecast.left_out:
        lines.append(f"Not included: {', '.join(f'{n} × {kind}' for kind, n in forecast.left_out.items())}.")
    lines += map(_text_note, forecast.texts)
    if used := {training.devices for training in forecast.trainings if training.devices < hardware.devices}:
        lines.append(
            f"A run uses only {' or '.join(map(str, sorted(used)))} of {hardware.devices} devices: at most as many as "
            "its micro_batches and workers."
        )
    return lines


def _text_note(text: TextForecast) -> str:
    if text.kept_bytes is None:
        return f"Text {text.pair}: not included, since its size is unknown before it is read."
    download = "unknown" if text.downloads_bytes is None else f"about {_size(text.downloads_bytes)}"
    downloaded = f"; download: {download}" if text.downloads_bytes != 0 else ""
    return f"Text {text.pair}: {text.train_pairs:,} pairs, about {_size(text.kept_bytes)} with token ids{downloaded}."


def _size(n_bytes: float) -> str:
    return decimal(round(n_bytes))
