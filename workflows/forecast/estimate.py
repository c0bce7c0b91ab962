"""What a table will take before anything of it is run: disk, floating-point operations, hours. Part of `--plan`.

    planned = [Planned("en-de base", "en-de", recipe.training, models=2)]
    told = forecast(profile, planned, find(8, "h100"), store)

Operations are counted as in a training, over sentence pairs drawn with the lengths that were measured on real text and
cut into micro-batches as a training's are. Nothing is read or downloaded.
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
from pipeline.settings import Settings, TrainingSettings
from pipeline.text.batching import by_length, cut
from pipeline.text.segmentation import id_type
from workflows import paper
from workflows.forecast.hardware import Hardware
from workflows.profiles import Profile

FLOAT32_BYTES = 4
OFFSETS_BYTES = 8
"""Arrow's, of a pair of token lists."""
ADAM_COPIES = 3
"""In a checkpoint, of the size of the weights: themselves and two moments."""


@dataclass(frozen=True)
class Planned:
    """Trainings that are alike but for their seed."""

    name: str
    pair: str
    training: TrainingSettings
    models: int = 1
    """Copies of the averaged model that are kept."""
    times: int = 1


@dataclass(frozen=True)
class TextForecast:
    """What becomes of a language pair's training text; None where that is not known before it is read."""

    pair: str
    lengths: str
    """The text whose measured lengths stand for its own: a name of `pipeline.corpora.synthetic.lengths.LENGTHS`."""
    train_pairs: int | None
    downloads_bytes: int | None
    """Of those that no pair before it needs."""
    is_download_estimated: bool
    text_bytes: float | None
    """As plain text, which is kept as read and cleaned."""
    ids_bytes: float | None

    @property
    def disk_bytes(self) -> float:
        """In all, as far as it is known."""
        return (self.downloads_bytes or 0) + 2 * (self.text_bytes or 0) + (self.ids_bytes or 0)


@dataclass(frozen=True)
class TrainingForecast:
    """What one of the trainings takes."""

    name: str
    times: int
    parameters: int
    devices: int
    """That have a part in it."""
    number_type: str
    flop_s: float
    """Rate of one device."""
    fraction: float
    """Of that rate, assumed to be reached."""
    counted_flop: float
    seconds: float
    paper_way_flop: float
    checkpoints_bytes: int
    """Of all that are kept."""
    models_bytes: int
    printed_cost_flop: float | None
    """None where the paper did not train it so."""
    printed_duration: str

    @property
    def disk_bytes(self) -> int:
        """Of what it leaves."""
        return self.checkpoints_bytes + self.models_bytes


@dataclass(frozen=True)
class Forecast:
    """Of a whole table."""

    hardware: Hardware
    texts: list[TextForecast]
    trainings: list[TrainingForecast]
    store: Path
    free_bytes: int
    """On the disk of the store."""

    @property
    def counted_flop(self) -> float:
        """Of all trainings; so are the next two."""
        return sum(one.times * one.counted_flop for one in self.trainings)

    @property
    def paper_way_flop(self) -> float:
        """Cost in the paper's way."""
        return sum(one.times * one.paper_way_flop for one in self.trainings)

    @property
    def seconds(self) -> float:
        """One after the other."""
        return sum(one.times * one.seconds for one in self.trainings)

    @property
    def disk_bytes(self) -> float:
        """In all, as far as it is known."""
        left_bytes = sum(one.times * one.disk_bytes for one in self.trainings)
        return left_bytes + sum(text.disk_bytes for text in self.texts)


def forecast(profile: Profile, planned: Sequence[Planned], hardware: Hardware, store: Path) -> Forecast:
    """Of trainings on language pairs of `profile`, whatever of it is in the store already."""
    folder = store.absolute()
    disk = next(there for there in (folder, *folder.parents) if there.exists())
    return Forecast(
        hardware,
        _texts(profile, list(dict.fromkeys(one.pair for one in planned))),
        [_training(one, _lengths_of(profile.for_pair(one.pair).corpora[one.pair]), hardware) for one in planned],
        folder,
        shutil.disk_usage(disk).free,
    )


def update_flop(training: TrainingSettings, lengths: str) -> float:
    """Counted operations of one update, on average; `lengths` as in TextForecast."""
    cut_into = _micro_batches(lengths, training.plan.micro_batch_tokens)
    return training_flop(training.model, *_drawn(lengths)) * training.micro_batches / cut_into


def _training(planned: Planned, lengths: str, hardware: Hardware) -> TrainingForecast:
    training = planned.training
    number_type, flop_s = hardware.flop_s(training.precision)
    fraction = hardware.fraction(training.model.d_model)
    most = training.workers if isinstance(training.workers, int) else training.workers[1]
    devices = min(hardware.devices, training.micro_batches, most or hardware.devices)
    counted_flop = training.updates * update_flop(training, lengths)
    # The device with most of an update's micro-batches is waited for by the others.
    longest_share = -(-training.micro_batches // devices) / training.micro_batches
    seconds = counted_flop * longest_share / (flop_s * fraction)
    weights_bytes = FLOAT32_BYTES * count(training.model)
    printed = _printed(planned)
    return TrainingForecast(
        name=planned.name,
        times=planned.times,
        parameters=count(training.model),
        devices=devices,
        number_type=number_type,
        flop_s=flop_s,
        fraction=fraction,
        counted_flop=counted_flop,
        seconds=seconds,
        paper_way_flop=seconds * devices * sustained_flop_s(hardware.name, flop_s)[0],
        checkpoints_bytes=_kept(training) * ADAM_COPIES * weights_bytes,
        models_bytes=planned.models * weights_bytes,
        printed_cost_flop=printed[0] if printed else None,
        printed_duration=printed[1] if printed else "",
    )


def _kept(training: TrainingSettings) -> int:
    """Checkpoints that are left of a training."""
    if training.checkpoint_minutes:
        return training.keep_checkpoints
    return min(training.keep_checkpoints, -(-training.updates // training.checkpoint_updates))


def _printed(planned: Planned) -> tuple[float | None, str] | None:
    """The paper's cost and time of the same training, where it has it (§5.2, §6.1)."""
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
                is_download_estimated=bool(amount.about & new.keys()),
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
    raise TypeError(f"nothing is known of {type(corpus).__name__}")


def _lengths_of(corpus: Settings) -> str:
    """Generated sentences are nearly as short as captions; a user's own text is taken to be as long as WMT14's."""
    short = isinstance(corpus, embedded.EmbeddedSettings | multi30k.Multi30kSettings)
    return "multi30k" if short else "wmt14"


@cache
def _drawn(lengths: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Source and target lengths, in tokens, of as many pairs as make a dense plan."""
    source, target = draw_lengths(LENGTHS[lengths], LENGTHS[lengths].pairs, np.random.default_rng(1))
    return source, target


@cache
def _micro_batches(lengths: str, limit_tokens: int) -> int:
    """How many hold the drawn pairs."""
    source, target = _drawn(lengths)
    rows = by_length(source, target, limit_tokens)
    return len(cut(source[rows], target[rows], limit_tokens)) - 1
