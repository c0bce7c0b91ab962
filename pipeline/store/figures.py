"""What the JSON files of the store's artifacts hold: figures, read back as they were written.

A file written by another version of the project is read too: a figure that this version does not know is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from pipeline.settings import DecodingSettings, TrainingSettings

NOT_RECORDED = "not recorded"
"""Stands in a stretch for what an earlier version did not write down."""


class Figures(BaseModel):
    """The base of all figures: they are frozen, and a file may have unknown ones, which are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RecordedTraining(TrainingSettings):
    """The settings of a finished training; one that this version does not know is ignored."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class RecordedDecoding(DecodingSettings):
    """The settings of a finished decoding; one that this version does not know is ignored."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


@dataclass(frozen=True)
class StretchDevices:
    """The devices of one name that computed a stretch of a training, one a worker."""

    name: str
    count: int
    matmul_flop_s: float
    """The rate of a matrix product on one device, in the number type of the stretch: the mean over these devices,
    measured at the beginning of the stretch."""


@dataclass
class Stretch:
    """A part of a training that was computed by the same workers throughout."""

    devices: tuple[StretchDevices, ...]
    threads: int
    """CPU threads of each worker."""
    dtype: str
    """The number type of the matrix products, e.g. "bfloat16"."""
    torch_version: str
    compiled: bool | None
    """Whether the layers were compiled; None where that was not recorded."""
    train_s: float = 0.0
    """Seconds spent on updates, as in `TrainingFigures`."""

    @property
    def workers(self) -> int:
        """The number of workers, each with a device of its own."""
        return sum(device.count for device in self.devices)

    @property
    def device_names(self) -> str:
        """The names of its devices, joined."""
        return " and ".join(device.name for device in self.devices)

    @property
    def matmul_flop_s(self) -> float:
        """The rate of all its devices together."""
        return sum(device.count * device.matmul_flop_s for device in self.devices)

    def is_alike(self, other: "Stretch") -> bool:
        """Tells whether the other one was computed on devices of the same names in the same way."""
        return self._described() == other._described()

    def _described(self) -> object:
        devices = {device.name: device.count for device in self.devices}
        return devices, self.threads, self.dtype, self.torch_version, self.compiled


class TrainingFigures(Figures):
    """`run.json`: what a training did. Tokens, seconds and operations include those before an interruption.

    What is said of workers, devices and number type is of the last stretch.
    """

    settings: RecordedTraining
    updates: int
    epochs: float
    train_s: float
    """Seconds spent on updates: without validation, checkpoints, starting and ending."""
    checkpoint_s: float | None = None
    """Seconds that the session which finished the training waited for checkpoints."""
    source_tokens: int
    target_tokens: int
    padding_fraction: float
    """The share of padding among all tokens computed."""
    workers: int
    threads: int
    """CPU threads of each worker."""
    devices: int
    device_name: str
    dtype: str
    """The number type of the matrix products, e.g. "bfloat16"."""
    matmul_flop_s: float
    """The rate of a matrix product on one device in that type; in files without stretches, of a float32 product."""
    counted_flop: float
    """Operations of the model's matrix products."""
    parameters: int
    checkpoints: tuple[int, ...]
    """The updates whose checkpoints were kept."""
    loop_s: float | None = None
    """Seconds that the training loop took in the session which finished the training."""
    torch_version: str | None = None
    compiled: bool | None = None
    """Whether the layers were compiled."""
    stretches: tuple[Stretch, ...] = ()
    """The parts of the training in order, whose seconds add up to `train_s`; empty in files of earlier versions."""

    @property
    def known_stretches(self) -> tuple[Stretch, ...]:
        """The stretches; for a file of an earlier version, one made of what it says of the whole training."""
        if self.stretches:
            return self.stretches
        devices = StretchDevices(self.device_name, self.devices, self.matmul_flop_s)
        return (Stretch((devices,), self.threads, self.dtype, NOT_RECORDED, None, self.train_s),)


class AveragingFigures(Figures):
    """`averaging.json`: which checkpoints were averaged."""

    updates: tuple[int, ...]


class DecodedTestSet(Figures):
    """The translation of one test set."""

    sentences: int
    seconds: float
    """Summed over workers, without loading the model."""
    tokens: int
    """Tokens decoded, END_ID counted."""


class DecodingFigures(Figures):
    """`decoding.json` of a model's translations; those by word-by-word substitution have fewer figures."""

    test_sets: Mapping[str, DecodedTestSet]
    settings: RecordedDecoding
    dtype: str
    """The number type that the model computed in, e.g. "bfloat16"."""


class ChoiceFigures(Figures):
    """`parsing.json`: what was chosen on the dev set, by F1 in percent (§6.3)."""

    model: str
    """The chosen candidate."""
    models: Mapping[str, float]
    """The F1 of each candidate, parsed with the beam of the profile's `decoding`."""
    beams: Mapping[int, float]
    """The F1 of the chosen candidate with each size of the beam."""
    settings: RecordedDecoding
    """The search with the chosen beam."""


class BleuScores(Figures):
    """Both BLEU scores of one test set, in percent."""

    paper_bleu: float
    """Tokenized and case-sensitive, as the paper's authors scored (§6.1)."""
    sacrebleu: float
    """Detokenized, with sacreBLEU's default settings."""
    signature: str
    """sacreBLEU's own description of how it scored."""
    sentences: int


class ScoringFigures(Figures):
    """`scores.json`: the scores of each test set, the main one first."""

    test_sets: Mapping[str, BleuScores]
    language: str
    """The target language, which decides how paper BLEU tokenizes."""
