"""Estimates what a table will take before it is run: disk, floating-point operations, hours. Part of `--plan`.

    planned = [Planned("en-de base", "en-de", recipe.training, models=2)]
    estimate = forecast(profile, planned, find(8, "h100"), store)

Operations are counted as in a training, over sentence pairs whose lengths are drawn from distributions measured on real
text and which are cut into micro-batches as in a training. Nothing is read or downloaded.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from workflows import paper
from workflows.forecast.hardware import Hardware
from workflows.forecast.planned import Planned
from workflows.profiles import Profile

FLOAT32_BYTES = 4
OFFSETS_BYTES = 8
"""Arrow's offsets for the two token lists of a pair."""
ADAM_MOMENTS = 2
"""Arrays of the size of the weights beside those in the last checkpoint for recovery."""


@dataclass(frozen=True)
class TextForecast:
    """Sizes of a language pair's training text; a field is None if it is not known before the text is read."""

    pair: str
    lengths: str
    """Text whose measured lengths stand in for this one's: a key of `pipeline.corpora.synthetic.lengths.LENGTHS`."""
    train_pairs: int | None
    downloads_bytes: int | None
    """Size of the downloads, without those that an earlier pair needs too."""
    is_download_estimated: bool
    text_bytes: float | None
    """Size of the plain text, of which two copies are kept: as read and cleaned."""
    ids_bytes: float | None

    @property
    def disk_bytes(self) -> float:
        """Total of the sizes that are known."""
        return (self.downloads_bytes or 0) + 2 * (self.text_bytes or 0) + (self.ids_bytes or 0)


@dataclass(frozen=True)
class TrainingForecast:
    """What each of some trainings takes."""

    name: str
    times: int
    parameters: int
    n_layers: int
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
    checkpoints_bytes: int
    """Size of all checkpoints that are kept."""
    kept_updates: tuple[int, ...]
    """The updates after which they were written."""
    averaged_updates: tuple[int, ...]
    """Those of them that are averaged."""
    models_bytes: int
    printed_cost_flop: float | None
    """The paper's figure, or None if the paper has no such training."""
    printed_duration: str

    @property
    def disk_bytes(self) -> int:
        """Disk space that the finished training occupies."""
        return self.checkpoints_bytes + self.models_bytes


@dataclass(frozen=True)
class Forecast:
    """The forecast for a whole table."""

    hardware: Hardware
    texts: list[TextForecast]
    trainings: list[TrainingForecast]
    store: Path
    free_bytes: int
    """Free space on the disk of the store."""

    @property
    def counted_flop(self) -> float:
        """Counted operations of all trainings."""
        return sum(one.times * one.counted_flop for one in self.trainings)

    @property
    def paper_way_flop(self) -> float:
        """Cost of all trainings as the paper computes it."""
        return sum(one.times * one.paper_way_flop for one in self.trainings)

    @property
    def seconds(self) -> float:
        """Duration of all trainings, run one after the other, if the rate of the devices is the limit."""
        return sum(one.times * one.seconds for one in self.trainings)

    @property
    def host_bound_s(self) -> float:
        """Duration of all trainings if the host is the limit wherever it can be."""
        return sum(one.times * one.host_bound_s for one in self.trainings)

    @property
    def disk_bytes(self) -> float:
        """Total of the sizes that are known."""
        trainings_bytes = sum(one.times * one.disk_bytes for one in self.trainings)
        return trainings_bytes + sum(text.disk_bytes for text in self.texts)


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
    """Returns the mean number of operations in one update; `lengths` is as in TextForecast."""
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
    device_tokens = round(training.budget_tokens * longest_share)
    fraction = hardware.fraction(training.model.d_model)
    seconds = counted_flop * longest_share / (flop_s * fraction)
    launching_s = training.updates * most_micro_batches * hardware.host_s(training.model.n_layers)
    weights_bytes = FLOAT32_BYTES * count(training.model)
    printed = _printed(planned)
    return TrainingForecast(
        name=planned.name,
        times=planned.times,
        parameters=count(training.model),
        n_layers=training.model.n_layers,
        devices=devices,
        dtype=dtype,
        flop_s=flop_s,
        fraction=fraction,
        device_tokens=device_tokens,
        counted_flop=counted_flop,
        seconds=seconds,
        host_bound_s=max(seconds, launching_s),
        paper_way_flop=seconds * devices * sustained_flop_s(hardware.name, flop_s)[0],
        checkpoints_bytes=(len(training.kept_updates) + 1 + ADAM_MOMENTS) * weights_bytes,
        kept_updates=training.kept_updates,
        averaged_updates=training.kept_updates[-planned.averaged :],
        models_bytes=planned.models * weights_bytes,
        printed_cost_flop=printed[0] if printed else None,
        printed_duration=printed[1] if printed else "",
    )


def _printed(planned: Planned) -> tuple[float | None, str] | None:
    """Returns the paper's cost and duration of the same training, or None if it has none (§5.2, §6.1)."""
    training = planned.training
    for model in paper.MODELS if planned.pair in paper.PAIRS else ():
        printed = paper.experiment(planned.pair, model)
        sized = replace(training.model, vocabulary_size=printed.model.vocabulary_size)
        ours = sized, training.updates, training.budget_tokens, training.optimizer.label_smoothing
        if ours == (printed.model, printed.updates, printed.budget_tokens, printed.label_smoothing):
            return paper.cost_flop(planned.pair, model), printed.duration
    return None


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
        itemsize = id_type(of_pair.vocabulary.size).itemsize
        ids_bytes = OFFSETS_BYTES + itemsize * sum(float(side.mean()) for side in _drawn(lengths))
        texts.append(
            TextForecast(
                pair=pair,
                lengths=lengths,
                train_pairs=amount.train_pairs,
                downloads_bytes=sum(sizes) if len(sizes) == len(new) else None,
                is_download_estimated=bool(amount.estimated & new.keys()),
                text_bytes=amount.text_bytes,
                ids_bytes=amount.train_pairs and amount.train_pairs * ids_bytes,
            )
        )
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
