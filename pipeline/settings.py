"""Settings of the stages: frozen, validated, defaults = the paper's base model on WMT14 (paper §5).

A field marked `not_in_fingerprint()` says how a stage is carried out, not what comes out: changing it recomputes
nothing.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from model.config import OptimizerConfig, TransformerConfig

Device = Literal["auto", "cpu", "gpu"]
"""auto: GPUs where the cluster has any (one a worker, nccl between them), else CPUs (gloo)."""
Precision = Literal["auto", "float32", "bfloat16"]
"""auto: bfloat16 where the processor multiplies it natively."""


def not_in_fingerprint(default: Any, **constraints: Any) -> Any:
    """A field that has no part in a stage's identity."""
    return Field(default, json_schema_extra={"in_fingerprint": False}, **constraints)


def _number_of_workers(value: Any) -> int | tuple[int, int]:
    bounds = value if isinstance(value, list | tuple) else str(value).split(":")
    match [int(bound) if str(bound).isdecimal() else -1 for bound in bounds]:
        case [number] if number >= 0:
            return number
        case [fewest, most] if 1 <= fewest <= most:
            return fewest, most
    raise ValueError(
        f"{value} is no number of workers; write 4, or 2:8 for 2 to 8, or 0 for as many as there is room for"
    )


Workers = Annotated[int | tuple[int, int], PlainValidator(_number_of_workers)]
"""A number, or the fewest and the most: (2, 8), as text "2:8"."""


class Settings(BaseModel):
    """Base of all settings: frozen, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def identity(self) -> dict[str, Any]:
        """The fields that decide what comes out, as JSON values."""
        fields = type(self).model_fields
        extra = {name: field.json_schema_extra for name, field in fields.items()}
        hidden = {
            name for name, value in extra.items() if isinstance(value, dict) and value.get("in_fingerprint") is False
        }
        return self.model_dump(mode="json", exclude=hidden)


class CleaningSettings(Settings):
    """Which training pairs are dropped. Lengths are words between white space."""

    max_words: int = Field(250, ge=1)
    max_ratio: float = Field(9.0, ge=1)
    """Longer side over shorter side, in words."""
    shard_pairs: int = Field(100_000, ge=1)
    """Pairs a shard of the cleaned corpus."""


class VocabularySettings(Settings):
    """Joint byte-pair encoding (§5.1)."""

    size: int = Field(37_000, ge=8)
    """Pieces, the four special ones included."""
    sample_pairs: int = Field(2_000_000, ge=1)
    """At most so many pairs, taken evenly over the training shards, are read to train it."""


class EncodingSettings(Settings):
    """Text to token ids."""

    max_tokens: int = Field(256, ge=2)
    """Training pairs with a longer side, end mark counted, are left out and counted; dev and test are kept whole."""


class PlanSettings(NamedTuple):
    """What decides how an epoch is cut into updates (§5.1); the fields are those of TrainingSettings."""

    budget_tokens: int
    micro_batches: int
    seed: int

    @property
    def micro_batch_tokens(self) -> int:
        """Limit on the source tokens, and on the target tokens, of one micro-batch."""
        return self.budget_tokens // self.micro_batches


class TrainingSettings(Settings):
    """One training (§5.2 to §5.4)."""

    model: TransformerConfig = TransformerConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    updates: int = Field(100_000, ge=1)
    budget_tokens: int = Field(25_000, ge=1)
    """Source tokens, and target tokens, of one update (§5.1)."""
    micro_batches: int = Field(8, ge=1)
    """Parts an update is cut into: the paper's GPUs. More workers than this are of no use."""
    seed: int = Field(1, ge=0)
    precision: Precision = "auto"
    exact_reduction: bool = False
    """Add the micro-batches' gradients in one fixed order: the same bits whatever the number of workers."""
    checkpoint_updates: int = Field(0, ge=0)
    """Updates between checkpoints; 0: by minutes alone."""
    checkpoint_minutes: float = Field(10.0, ge=0)
    """Minutes between checkpoints (§6.1: 10); 0: by updates alone."""
    keep_checkpoints: int = Field(5, ge=1)
    validation_updates: int = Field(1000, ge=1)
    """Updates between measurements of the loss on the dev set."""
    log_updates: int = not_in_fingerprint(50, ge=1)
    """Updates between two lines of metrics."""
    workers: Workers = not_in_fingerprint(0)
    """Training processes, 0: one for each CPU or GPU of the cluster, at most `micro_batches`. "2:8": as many as there
    is room for at any time, from 2 to 8. Batches do not change."""
    threads: int = not_in_fingerprint(1, ge=1)
    """CPU threads of each worker."""
    device: Device = not_in_fingerprint("auto")

    @property
    def plan(self) -> PlanSettings:
        """The part of these settings that decides which pairs make which update."""
        return PlanSettings(self.budget_tokens, self.micro_batches, self.seed)

    @model_validator(mode="after")
    def _some_checkpoint(self) -> "TrainingSettings":
        if not self.checkpoint_updates and not self.checkpoint_minutes:
            raise ValueError("checkpoint_updates and checkpoint_minutes are both 0; set one of them")
        return self


class AveragingSettings(Settings):
    """Averaging of checkpoints (§6.1)."""

    last: int = Field(5, ge=1)


class DecodingSettings(Settings):
    """Beam search (§6.1)."""

    beam_size: int = Field(4, ge=1, le=1024)
    length_penalty: float = Field(0.6, ge=0, le=10)
    """α of ((5 + |y|) / 6)^α (Wu et al. 2016)."""
    max_extra_tokens: int = Field(50, ge=1)
    """The output has at most as many tokens as the input plus this."""
    precision: Precision = "auto"
    batch_tokens: int = not_in_fingerprint(4096, ge=1)
    """Source tokens decoded at once, beams not counted."""
    workers: int = not_in_fingerprint(0, ge=0)
    """Ray actors over shards of the test sets, 0: one for each CPU or GPU of the cluster."""
    threads: int = not_in_fingerprint(1, ge=1)
    """CPU threads of each worker."""
    device: Device = not_in_fingerprint("auto")
