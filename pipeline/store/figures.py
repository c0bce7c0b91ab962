"""What the JSON files of the store's artifacts hold: figures, read back as they were written.

A file written by another version of the project is read too: a figure that this version does not know is ignored.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from pipeline.settings import DecodingSettings, TrainingSettings


class Figures(BaseModel):
    """The base of all figures: they are frozen, and a file may have unknown ones, which are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RecordedTraining(TrainingSettings):
    """The settings of a finished training; one that this version does not know is ignored."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class RecordedDecoding(DecodingSettings):
    """The settings of a finished decoding; one that this version does not know is ignored."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class TrainingFigures(Figures):
    """`run.json`: what a training did. Tokens, seconds and operations include those before an interruption."""

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
    """The rate of a float32 matrix product on one device, measured before the first update."""
    counted_flop: float
    """Operations of the model's matrix products."""
    parameters: int
    checkpoints: tuple[int, ...]
    """The updates whose checkpoints were kept."""
    loop_s: float | None = None
    """Seconds that the training loop took in the session which finished the training."""


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
