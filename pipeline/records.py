"""Records: the content of the JSON files in the store's artifacts."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pipeline.settings import DecodingSettings, TrainingSettings
from pipeline.store.folders import Inside

NOT_DEFINED = "not defined"
"""Text shown for a Moses BLEU of None."""


class Record(BaseModel):
    """Base of the content of an artifact's JSON file: frozen. Unknown keys are errors in code and ignored in files.

    Fields added later need defaults, so that older artifacts stay readable.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class SegmentDevices:
    """The devices of one model that computed a segment of a run, one per worker."""

    name: str
    count: int
    matmul_flop_s: float | None
    """Mean matmul rate of one GPU in the segment's dtype, measured at its start. None for CPUs."""


@dataclass
class Segment:
    """A part of a run that was computed by the same workers throughout."""

    devices: tuple[SegmentDevices, ...]
    threads: int
    """CPU threads per worker."""
    dtype: str
    """The dtype of matrix products, e.g. "bfloat16"."""
    torch_version: str
    compiled: bool
    """Whether the layers were compiled."""
    train_s: float = 0.0
    """Time spent on updates, as in `TrainingRecord`."""
    packed: bool = False
    """Whether batches were packed."""
    captured: bool = False
    """Whether all workers computed passes by a CUDA graph."""

    @property
    def workers(self) -> int:
        """The number of workers, one device each."""
        return sum(device.count for device in self.devices)

    @property
    def device_names(self) -> str:
        """The names of the devices, joined."""
        return " and ".join(device.name for device in self.devices)

    @property
    def form(self) -> str:
        """How passes were computed, e.g. "compiled layers, packed batches, a CUDA graph"."""
        layers = "compiled layers" if self.compiled else "layers not compiled"
        return layers + ", packed batches" * self.packed + ", a CUDA graph" * self.captured

    def is_alike(self, other: "Segment") -> bool:
        """Whether both segments ran on the same numbers of the same devices in the same form."""
        of = attrgetter("threads", "dtype", "torch_version", "form")
        here, there = ({device.name: device.count for device in segment.devices} for segment in (self, other))
        return here == there and bool(of(self) == of(other))


class TrainingRecord(Record):
    """`run.json`: the record of a training run. Tokens, seconds and FLOP include interrupted sessions."""

    settings: TrainingSettings
    updates: int
    epochs: float
    train_s: float
    """Time spent on updates, including waits for data, the device and other workers. Excludes start-up (compilation,
    graph capture, trying the largest batches), metrics, validation and, on CPUs, copying checkpoints."""
    loop_s: float | None = None
    """Duration of the last session in rank 0's process. None if written by an older version."""
    start_s: Mapping[str, float] = {}
    """Its start by part: importing, connecting the workers, opening data and planning an epoch, making and loading the
    model, the largest passes (with compilation), capturing a CUDA graph, the rest."""
    data_wait_s: float = 0.0
    """Share of `train_s` for which rank 0 waited for batches to be read. 0 if written by an older version."""
    peak_memory_gb: float = 0.0
    """Most memory of rank 0: what tensors took on its GPU; on a CPU, its whole process."""
    source_tokens: int
    target_tokens: int
    padding_fraction: float
    """Share of padding among all computed tokens."""
    counted_flop: float
    """FLOP of the model's matrix products."""
    parameters: int
    checkpoints: tuple[int, ...] = ()
    """The updates whose checkpoints were kept."""
    dev_left_out: int = 0
    """Dev pairs too long to be computed, excluded from loss and perplexity."""
    segments: tuple[Segment, ...] = Field(min_length=1)
    """The parts of the run in order; their seconds add up to `train_s`."""


class AveragingRecord(Record):
    """`averaging.json`: the averaged checkpoints."""

    updates: tuple[int, ...]


class CorpusRecord(Record):
    """`corpus.json`."""

    source: Inside
    """Source language, e.g. "en"."""
    target: Inside
    shards: tuple[int, ...]
    """Number of pairs by shard."""
    collections: tuple[str, ...]
    """Collection by shard."""
    symbols: tuple[str, ...] = ()
    """The sorted symbols of linearised trees, if the target side consists of them."""
    report: Mapping[str, Any] = {}
    """How the text was prepared."""


class EvaluationSetRecord(Record):
    """`evaluation_set.json`."""

    name: Inside
    """E.g. "dev" or "newstest2014"."""
    source: Inside
    """Language of the sentences."""
    target: Inside
    """Language of the references."""
    sentences: int
    report: Mapping[str, Any] = {}
    """How the set was prepared."""


class DecodingRecord(Record):
    """`decoding.json` of a model's hypotheses. Word-by-word substitution writes fewer fields."""

    sentences: int
    seconds: float
    """Summed over workers, without model loading."""
    tokens: int
    """Decoded tokens, END_ID included."""
    settings: DecodingSettings
    dtype: str
    """The dtype of the computation, e.g. "bfloat16"."""


class ChoiceRecord(Record):
    """`parsing.json`: the choice made on the dev set by F1 in percent (§6.3)."""

    model: str
    """The chosen candidate."""
    models: Mapping[str, float]
    """F1 of each candidate, with the beam of the profile's `decoding`."""
    beams: Mapping[int, float]
    """F1 of the chosen candidate by beam size."""
    settings: DecodingSettings
    """The search with the chosen beam."""


class BleuScores(Record):
    """BLEU by the paper's method and by sacreBLEU, and chrF, of one test set, in percent.

    Intervals are 95% confidence intervals (low, high) over sentences, for up to 10,000 sentences. Older files lack what
    has a default.
    """

    paper_bleu: float | None
    """Tokenized and case-sensitive, like the paper's scores (§6.1). None for languages written without spaces, where
    it is not defined."""
    sacrebleu: float
    """Detokenized, with sacreBLEU's defaults and its tokenizer for the language."""
    signature: str
    """sacreBLEU's signature."""
    sentences: int
    lowercased: float | None = None
    """sacreBLEU of lower-cased lines (`sacrebleu -lc`), the metric of most papers on Multi30k and IWSLT."""
    lowercased_signature: str | None = None
    chrf: float | None = None
    chrf_signature: str | None = None
    paper_bleu_interval: tuple[float, float] | None = None
    sacrebleu_interval: tuple[float, float] | None = None

    @property
    def defined(self) -> dict[str, float]:
        """The defined scores by name: "paper_bleu", "paper_bleu_low", "paper_bleu_high", "chrf" etc."""
        scores = self.model_dump(include={"paper_bleu", "sacrebleu", "lowercased", "chrf"})
        for name, interval in (("paper_bleu", self.paper_bleu_interval), ("sacrebleu", self.sacrebleu_interval)):
            scores |= zip((f"{name}_low", f"{name}_high"), interval or (), strict=False)
        return {name: score for name, score in scores.items() if score is not None}

    @property
    def deciding(self) -> tuple[str, float]:
        """Name and value of the score by which models are compared: Moses BLEU, or sacreBLEU if that is not defined."""
        return ("sacrebleu", self.sacrebleu) if self.paper_bleu is None else ("paper_bleu", self.paper_bleu)

    @property
    def text(self) -> str:
        """Both BLEU scores as text."""
        paper_bleu = NOT_DEFINED if self.paper_bleu is None else f"{self.paper_bleu:.2f}"
        return f"Moses BLEU {paper_bleu}, sacreBLEU {self.sacrebleu:.2f}"

    @property
    def long_text(self) -> str:
        """The same with 95% intervals, lower-cased and chrF: `Moses BLEU 27.31 [26.72, 27.90], sacreBLEU ...`."""
        intervals = (self.paper_bleu_interval, self.sacrebleu_interval)
        parts = [
            part + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")
            for part, interval in zip(self.text.split(", "), intervals, strict=True)
        ]
        further = {"lower-cased": self.lowercased, "chrF": self.chrf}
        return ", ".join([*parts, *(f"{name} {score:.2f}" for name, score in further.items() if score is not None)])


class ScoringRecord(BleuScores):
    """`scores.json`."""

    name: str
    """The evaluation set."""
    language: str
    """Target language, which decides how Moses BLEU tokenizes."""
