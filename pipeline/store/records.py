"""Records: the content of the JSON files in the store's artifacts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from pipeline.settings import DecodingSettings, TrainingSettings

NOT_DEFINED = "not defined"
"""What stands in place of paper BLEU where it is None."""


class Record(BaseModel):
    """Base of the content of an artifact's JSON file: frozen. Unknown keys are errors in code and ignored in files.

    Fields added later need defaults, so that older artifacts stay readable.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class SegmentDevices:
    """The devices of one name that computed a segment of a training, one a worker."""

    name: str
    count: int
    matmul_flop_s: float | None
    """The rate of a matrix product on one GPU, in the dtype of the segment: the mean over these devices, measured at
    the beginning of the segment. None for CPUs."""


@dataclass
class Segment:
    """A part of a training that was computed by the same workers throughout."""

    devices: tuple[SegmentDevices, ...]
    threads: int
    """CPU threads of each worker."""
    dtype: str
    """The dtype of the matrix products, e.g. "bfloat16"."""
    torch_version: str
    compiled: bool
    """Whether the layers were compiled."""
    train_s: float = 0.0
    """Seconds spent on updates, as in `TrainingRecord`."""
    packed: bool = False
    """Whether micro-batches were packed."""
    captured: bool = False
    """Whether all workers computed them by a CUDA graph."""

    @property
    def workers(self) -> int:
        """The number of workers, each with a device of its own."""
        return sum(device.count for device in self.devices)

    @property
    def device_names(self) -> str:
        """The names of its devices, joined."""
        return " and ".join(device.name for device in self.devices)

    @property
    def form(self) -> str:
        """How its micro-batches were computed, e.g. "compiled layers, packed batches, a CUDA graph"."""
        layers = "compiled layers" if self.compiled else "layers not compiled"
        return layers + ", packed batches" * self.packed + ", a CUDA graph" * self.captured

    def is_alike(self, other: "Segment") -> bool:
        """Tells whether the other one was computed on devices of the same names in the same way."""
        return self._described() == other._described()

    def _described(self) -> object:
        devices = {device.name: device.count for device in self.devices}
        forms = self.compiled, self.packed, self.captured
        return devices, self.threads, self.dtype, self.torch_version, forms


class TrainingRecord(Record):
    """`run.json`: what a training did. Tokens, seconds and operations include those before an interruption."""

    settings: TrainingSettings
    updates: int
    epochs: float
    train_s: float
    """Seconds spent on updates, waiting for their data, the device and the other workers included. Left out is what
    comes before the first update (compiling, recording, trying the largest batches) and between updates: writing
    metrics, asking whether a machine goes, validation, and copying a checkpoint."""
    checkpoint_s: float | None = None
    """Seconds that the session which finished the training waited for checkpoints."""
    loop_s: float | None = None
    """Seconds that the training loop took in that session. None: another version did not record it."""
    source_tokens: int
    target_tokens: int
    padding_fraction: float
    """The share of padding among all tokens computed."""
    counted_flop: float
    """Operations of the model's matrix products."""
    parameters: int
    checkpoints: tuple[int, ...] = ()
    """The updates whose checkpoints were kept."""
    dev_left_out: int = 0
    """Dev pairs that are too long to be computed, and so count in no loss or perplexity."""
    segments: tuple[Segment, ...] = Field(min_length=1, validation_alias=AliasChoices("segments", "stretches"))
    """The parts of the run in order, whose seconds add up to `train_s`. An earlier version called them stretches."""

    @property
    def devices(self) -> int:
        """The devices that ended the training, one a worker."""
        return self.segments[-1].workers

    @property
    def device_name(self) -> str:
        """Their names."""
        return self.segments[-1].device_names

    @property
    def threads(self) -> int:
        """The CPU threads of each worker at the end."""
        return self.segments[-1].threads

    @property
    def dtype(self) -> str:
        """The dtype of the matrix products at the end, e.g. "bfloat16"."""
        return self.segments[-1].dtype


class AveragingRecord(Record):
    """`averaging.json`: which checkpoints were averaged."""

    updates: tuple[int, ...]


class CorpusRecord(Record):
    """`corpus.json`."""

    source: str
    """The language of the sentences, e.g. "en"."""
    target: str
    shards: tuple[int, ...]
    """The pairs in each shard."""
    collections: tuple[str, ...]
    """The collection of each shard."""
    symbols: tuple[str, ...] = ()
    """The symbols of linearised trees, where the target side consists of them, sorted."""
    report: Mapping[str, Any] = {}
    """How the text was made."""


class EvaluationSetRecord(Record):
    """`evaluation_set.json`."""

    name: str
    """E.g. "dev" or "newstest2014"."""
    source: str
    """The language of the sentences."""
    target: str
    """The language of the references."""
    sentences: int
    report: Mapping[str, Any] = {}
    """How they were made."""


class DecodingRecord(Record):
    """`decoding.json` of a model's hypotheses; those by word-by-word substitution have fewer figures."""

    sentences: int
    seconds: float
    """Summed over workers, without loading the model."""
    tokens: int
    """Tokens decoded, END_ID counted."""
    settings: DecodingSettings
    dtype: str
    """The dtype that the model computed in, e.g. "bfloat16"."""

    @property
    def computed_in(self) -> str:
        """The dtype, with the engine if that is not torch."""
        return self.dtype if self.settings.engine == "torch" else f"{self.dtype} by CTranslate2"


class ChoiceRecord(Record):
    """`parsing.json`: what was chosen on the dev set, by F1 in percent (§6.3)."""

    model: str
    """The chosen candidate."""
    models: Mapping[str, float]
    """The F1 of each candidate, parsed with the beam of the profile's `decoding`."""
    beams: Mapping[int, float]
    """The F1 of the chosen candidate with each size of the beam."""
    settings: DecodingSettings
    """The search with the chosen beam."""


class BleuScores(Record):
    """Both BLEU scores of one test set, their 95% confidence intervals (low, high) over sentences, and chrF: percent.

    An earlier version had neither chrF nor intervals. More than 10,000 sentences have no interval.
    """

    paper_bleu: float | None
    """Tokenized and case-sensitive, as the paper's authors scored (§6.1). None for a language that is written without
    spaces between words, where it is not defined."""
    sacrebleu: float
    """Detokenized, with sacreBLEU's default settings and its tokenizer for the language."""
    signature: str
    """sacreBLEU's own description of how it scored."""
    sentences: int
    chrf: float | None = None
    chrf_signature: str | None = None
    paper_bleu_interval: tuple[float, float] | None = None
    sacrebleu_interval: tuple[float, float] | None = None

    @property
    def defined(self) -> dict[str, float]:
        """The figures that are defined, by name: "paper_bleu", "paper_bleu_low", "paper_bleu_high", "chrf" etc."""
        scores = {"paper_bleu": self.paper_bleu, "sacrebleu": self.sacrebleu, "chrf": self.chrf}
        for name, interval in (("paper_bleu", self.paper_bleu_interval), ("sacrebleu", self.sacrebleu_interval)):
            scores |= zip((f"{name}_low", f"{name}_high"), interval or (), strict=False)
        return {name: score for name, score in scores.items() if score is not None}

    @property
    def deciding(self) -> float:
        """The score by which models and searches are compared: paper BLEU, or sacreBLEU where that is not defined."""
        return self.sacrebleu if self.paper_bleu is None else self.paper_bleu

    @property
    def text(self) -> str:
        """Both scores in words."""
        paper_bleu = NOT_DEFINED if self.paper_bleu is None else f"{self.paper_bleu:.2f}"
        return f"paper BLEU {paper_bleu}, sacreBLEU {self.sacrebleu:.2f}"

    @property
    def long_text(self) -> str:
        """The same with 95% intervals over sentences, and chrF: `paper BLEU 27.31 [26.72, 27.90], sacreBLEU ...`."""
        intervals = (self.paper_bleu_interval, self.sacrebleu_interval)
        parts = [
            part + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")
            for part, interval in zip(self.text.split(", "), intervals, strict=True)
        ]
        return ", ".join(parts + ([] if self.chrf is None else [f"chrF {self.chrf:.2f}"]))


class ScoringRecord(BleuScores):
    """`scores.json`."""

    name: str
    """The evaluation set."""
    language: str
    """The target language, which decides how paper BLEU tokenizes."""
