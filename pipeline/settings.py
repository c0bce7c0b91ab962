"""Settings of the stages: frozen and validated; the defaults are the paper's base model on WMT14 (paper §5).

A field marked `not_in_fingerprint()` affects how a stage runs, not its output: changing it recomputes nothing.
"""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from model.config import OptimizerConfig, SearchConfig, TransformerConfig

Device = Literal["auto", "cpu", "gpu"]
"""auto: GPUs if the cluster has any (one per worker, nccl between them), otherwise CPUs (gloo)."""
Dtype = Literal["auto", "float32", "bfloat16"]
"""auto: bfloat16 if the device gains by it (`pipeline.hardware`), otherwise float32. All workers of a training use the
same type, and a training that is continued keeps its own (`pipeline.training.devices`)."""
AbsolutePath = Annotated[Path, AfterValidator(lambda path: Path(os.path.expanduser(path)).absolute())]
"""Made absolute when it is read, since a stage may run in another working directory. A name that begins with a tilde
and is no user's, which Path.expanduser refuses, is the name of a file."""
DecodingDtype = Literal["auto", "float32", "bfloat16", "int8"]
"""int8: weights in int8, which only CTranslate2 computes with; `auto` never chooses it."""
Engine = Literal["torch", "ctranslate2"]
"""What searches: `model.search`, or CTranslate2, with the model exported to it (`pipeline.export.ctranslate2`)."""


MAX_COUNT = 10**9
"""More than any machine counts up to: what is above it is a slip of the keyboard."""
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
"""What torch and NumPy take."""
Threads = Annotated[int, Field(ge=1, le=4096)]
LONGEST_TOKENS = 1024
"""The longest sentence that a model computes whole, END_ID counted: attention's memory grows with the length squared.
Training and what is measured on the dev split leave longer pairs out, and translation cuts longer sources."""
BeamSize = Annotated[int, Field(ge=1, le=1024)]
LengthPenalty = Annotated[float, Field(ge=0, le=10)]
"""α of ((5 + |y|) / 6)^α (Wu et al. 2016)."""


def not_in_fingerprint(default: Any, **constraints: Any) -> Any:
    """Declares a field that is not part of a stage's identity."""
    return Field(default, json_schema_extra={"in_fingerprint": False}, **constraints)


MAX_WORKERS = 10_000


def _bounds(value: Any) -> list[int]:
    """Reads a number or a range of two, such as "2:8" or (2, 8); -1 stands for what is no number."""
    bounds = value if isinstance(value, list | tuple) else str(value).split(":")
    return [int(bound) if str(bound).isdecimal() else -1 for bound in bounds]


def _number_of_workers(value: Any) -> int | tuple[int, int]:
    match _bounds(value):
        case [number] if 0 <= number <= MAX_WORKERS:
            return number
        case [fewest, most] if 1 <= fewest <= most <= MAX_WORKERS:
            return fewest, most
    raise ValueError(
        f"{value} is not a number of workers; write 4, or 2:8 for 2 to 8, or 0 for as many as there is room for"
    )


Workers = Annotated[int | tuple[int, int], BeforeValidator(_number_of_workers)]
"""A number, or a minimum and a maximum: (2, 8), written "2:8" as text."""


MAX_PROFILED = 20
"""Updates in one profile: those of base are written in minutes, in which all workers wait."""


def _profiled_updates(value: Any) -> tuple[int, int] | None:
    if value is None or value == "":
        return None
    match _bounds(value):
        case [first, last] if 1 <= first <= last < first + MAX_PROFILED:
            return first, last
    raise ValueError(f"{value} is not a range of at most {MAX_PROFILED} updates; write 100:110 for updates 100 to 110")


ProfiledUpdates = Annotated[tuple[int, int] | None, BeforeValidator(_profiled_updates)]
"""The first and the last update to profile: (100, 110), written "100:110" as text; None, or "", for no update."""


class Settings(BaseModel):
    """Base class of all settings: frozen, and unknown fields, infinity and NaN are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def identity(self) -> dict[str, Any]:
        """Returns the fields that determine the output, as JSON values; those added later only where they are set."""
        hidden = {
            name
            for name, field in type(self).model_fields.items()
            if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("in_fingerprint") is False
        }
        described = self.model_dump(mode="json", exclude=hidden)
        for name, value in self:
            if name in described and is_dataclass(value):
                for part in fields(value):
                    if part.metadata.get("added_later") and getattr(value, part.name) == part.default:
                        del described[name][part.name]
        return described


class CleaningSettings(Settings):
    """Decides which training pairs are dropped. Lengths are counted in words, which are what spaces separate; or, if a
    side is written without spaces between words, in characters, five for each word that is allowed."""

    max_words: Count = 250
    max_ratio: float = Field(9.0, ge=1, le=1e6)
    """Largest ratio of the longer side to the shorter one."""
    shard_pairs: Count = 100_000
    """Pairs per shard of the cleaned corpus."""


class VocabularySettings(Settings):
    """Joint byte-pair encoding (§5.1)."""

    size: int = Field(37_000, ge=8, le=1_000_000)
    """Number of pieces, including the four special ones."""
    sample_pairs: Count = 2_000_000
    """Maximum number of pairs, spread evenly over the training shards, that the vocabulary is learned from."""
    character_coverage: float = Field(0.9999, ge=0.98, le=1)
    """Share of the text's characters, the most frequent first, that get a piece each. sentencepiece allows no less."""
    byte_fallback: bool = True
    """Spend 256 pieces on the bytes, so that a character without a piece is spelled in UTF-8 instead of unknown."""

    def without_word_spaces(self) -> "VocabularySettings":
        """Returns the settings for text that includes a language such as Chinese, with thousands of characters.

        There are 2000 pieces more, and the coverage is what sentencepiece advises; the rarest characters are spelled
        in bytes.
        """
        changes = {"size": self.size + 2000, "character_coverage": 0.9995, "byte_fallback": True}
        return self.model_copy(update=changes)


class EncodingSettings(Settings):
    """Conversion of text to token ids."""

    max_tokens: int = Field(256, ge=2, le=LONGEST_TOKENS)
    """Training pairs with a longer side, end mark included, are left out and counted; dev and test keep every pair."""


class TrainingSettings(Settings):
    """One training run (§5.2 to §5.4)."""

    model: TransformerConfig = TransformerConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    updates: Count = 100_000
    budget_tokens: Count = 25_000
    """Maximum source tokens, and maximum target tokens, per update (§5.1)."""
    micro_batches: int = Field(8, ge=1, le=MAX_WORKERS)
    """Number of parts an update is split into, like the paper's GPUs. More workers than this have nothing to do."""
    seed: Seed = 1
    dtype: Dtype = "auto"
    exact_reduction: bool = False
    """Add the micro-batches' gradients in a fixed order, and let GPUs use deterministic kernels alone: bit-identical
    results for any number of workers. On GPUs nothing else gives the same bits twice, not even after a kill."""
    exchange: Literal["float32", "bfloat16"] = "float32"
    """The type in which workers add up gradients; bfloat16 halves what they send and keeps 8 bits of every sum."""
    checkpoint_updates: Count = round(10 * 60 / 0.4)
    """Updates between checkpoints (§6.1: 10 minutes; §5.2: 0.4 s an update of base, so 1 500)."""
    keep_checkpoints: Count = 5
    """The number of checkpoints that stay when the training is done, the last ones; `kept_updates` lists them."""
    validation_updates: Count = 1000
    """Updates between measurements of the loss on the dev set."""
    log_updates: Count = not_in_fingerprint(200)
    """Updates between two lines of metrics: every few seconds on fast GPUs, which wait for the host meanwhile."""
    workers: Workers = not_in_fingerprint(0)
    """Number of training processes; 0: one per CPU or GPU of the cluster, at most `micro_batches`; "2:8": from 2 to 8,
    as many as there is room for at any time. The batches do not depend on it."""
    threads: Threads = not_in_fingerprint(1)
    """CPU threads per worker."""
    device: Device = not_in_fingerprint("auto")
    speed: Literal["auto", "plain"] = not_in_fingerprint("auto")
    """auto: on GPUs, do what is fast and works: pack micro-batches (in bfloat16), compile layers (with Triton, without
    `exact_reduction`), and launch a micro-batch as one CUDA graph. plain: do none of it, as on CPUs."""
    profile_updates: ProfiledUpdates = not_in_fingerprint(None)
    """Updates that torch.profiler records at rank 0: `pipeline.training.profiling`."""

    @property
    def micro_batch_tokens(self) -> int:
        """Limit on the source tokens, and on the target tokens, of one micro-batch."""
        return self.budget_tokens // self.micro_batches

    @property
    def kept_updates(self) -> tuple[int, ...]:
        """The updates after which there is a checkpoint that stays: the last multiples of an interval, and the end."""
        multiples = range(self.checkpoint_updates, self.updates, self.checkpoint_updates)
        return (*multiples[max(0, len(multiples) + 1 - self.keep_checkpoints) :], self.updates)

    @model_validator(mode="after")
    def _possible(self) -> "TrainingSettings":
        if self.micro_batches > self.budget_tokens:
            raise ValueError(f"micro_batches is {self.micro_batches}, but budget_tokens only {self.budget_tokens}")
        if self.exact_reduction and self.exchange != "float32":
            raise ValueError(f"exact_reduction adds in float32, not in {self.exchange}; leave one of the two out")
        if self.optimizer.schedule == "linear" and self.optimizer.warmup_steps >= self.updates:
            raise ValueError(
                f"optimizer.schedule is linear, but optimizer.warmup_steps ({self.optimizer.warmup_steps}) leave none "
                f"of the {self.updates} updates to fall in"
            )
        if self.profile_updates and self.profile_updates[1] > self.updates:
            first, last = self.profile_updates
            raise ValueError(f"profile_updates is {first}:{last}, but the run ends at update {self.updates}")
        return self


class AveragingSettings(Settings):
    """Checkpoint averaging (§6.1)."""

    last: Count = 5


class DecodingSettings(Settings):
    """Beam search (§6.1)."""

    beam_size: BeamSize = SearchConfig.beam_size
    length_penalty: LengthPenalty = SearchConfig.length_penalty
    max_extra_tokens: int = Field(SearchConfig.max_extra_tokens, ge=1, le=1_000_000)
    """The output is at most this many tokens longer than the input."""
    well_formed: bool = False
    """Write nothing but a tree with as many words as the input (§6.3, for parsers: `pipeline.parsing.constraint`)."""
    engine: Engine = not_in_fingerprint("torch")
    """The exported model is an artifact of its own, by whose fingerprint its translations differ from the others."""
    dtype: DecodingDtype = "auto"
    batch_tokens: int = not_in_fingerprint(0, ge=0, le=MAX_COUNT)
    """Source tokens decoded at once, not counting beams; 0: 4096 on a CPU and 16384 on a GPU."""
    workers: int = not_in_fingerprint(0, ge=0, le=MAX_WORKERS)
    """Number of Ray actors, which share the test sets; 0: one per CPU, or up to four per GPU as its memory allows.
    There are fewer if the sentences do not occupy as many."""
    threads: Threads = not_in_fingerprint(1)
    """CPU threads per worker."""
    device: Device = not_in_fingerprint("auto")

    @property
    def on_torch(self) -> "DecodingSettings":
        """The same search by torch, in a dtype that it has."""
        dtype = "auto" if self.dtype == "int8" else self.dtype
        return self.model_copy(update={"engine": "torch", "dtype": dtype})

    def searching_like(self, chosen: "DecodingSettings") -> "DecodingSettings":
        """Returns these settings with the beam, length penalty and greatest length of a chosen search."""
        search = chosen.model_dump(include={"beam_size", "length_penalty", "max_extra_tokens"})
        return DecodingSettings(**{**self.model_dump(), **search})

    @model_validator(mode="after")
    def _possible(self) -> "DecodingSettings":
        if self.well_formed and self.max_extra_tokens < 2:
            raise ValueError("a tree has at least two symbols more than words; set max_extra_tokens to 2 or more")
        if self.dtype == "int8" and self.engine == "torch":
            raise ValueError("only engine ctranslate2 computes in int8; choose that engine, or dtype auto")
        return self


PARSING = DecodingSettings(beam_size=21, length_penalty=0.3, max_extra_tokens=300)
"""The paper's search for a tree (§6.3)."""


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested settings: {"model": {"d_k": 64}} -> {"model.d_k": 64}."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return flat
