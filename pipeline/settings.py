"""Settings of the stages: frozen and validated; defaults are the paper's base model on WMT14 (paper §5).

A field marked `not_in_fingerprint()` affects how a stage runs, not its output: changing it recomputes nothing.
"""

import ast
import codecs
import inspect
import json
import os
import re
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from model.config import OptimizerConfig, SearchConfig, TransformerConfig
from pipeline.errors import UserError

Device = Literal["auto", "cpu", "gpu"]
"""auto: GPUs if the cluster has any (one per worker, connected by NCCL), else CPUs (gloo)."""
Dtype = Literal["auto", "float32", "bfloat16"]
"""auto: bfloat16 if the device gains by it (`pipeline.hardware`), else float32. All workers of a run use the same
dtype, and a resumed run keeps its own (`pipeline.training.devices`)."""
AbsolutePath = Annotated[Path, AfterValidator(lambda path: Path(os.path.expanduser(path)).absolute())]
"""Made absolute on reading, since stages may run in another working directory. "~name" without such a user, which
Path.expanduser rejects, is a file name."""


MAX_COUNT = 10**9
"""Larger values are typing errors."""
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
"""The range accepted by torch and NumPy."""
GpuShare = Annotated[float, Field(ge=0.01, le=1)]
LONGEST_TOKENS = 1024
"""Maximum sentence length that a model computes whole, END_ID included, since attention's memory is quadratic. Training
and metrics on the dev split skip longer pairs; translation splits longer sources."""
BeamSize = Annotated[int, Field(ge=1, le=1024)]
LengthPenalty = Annotated[float, Field(ge=0, le=10)]
"""α of ((5 + |y|) / 6)^α (Wu et al. 2016)."""


def not_in_fingerprint(default: Any, **constraints: Any) -> Any:
    """Declares a field that is not part of a stage's identity."""
    return Field(default, json_schema_extra={"in_fingerprint": False}, **constraints)


MAX_WORKERS = 10_000
EXACT_PARTS = 8
"""Parts of an update whose sums `exact_reduction` adds in a fixed order."""


def _bounds(value: Any) -> list[int]:
    """Parses a number or a range such as "2:8" or (2, 8); -1 marks an invalid number."""
    bounds = value if isinstance(value, list | tuple) else str(value).split(":")
    return [int(bound) if str(bound).isdecimal() else -1 for bound in bounds]


def _number_of_workers(value: Any) -> int | tuple[int, int]:
    match _bounds(value):
        case [number] if 0 <= number <= MAX_WORKERS:
            return number
        case [fewest, most] if 1 <= fewest <= most <= MAX_WORKERS:
            return fewest, most
    raise ValueError(f"{value} is not a number of workers; write 4, or 2:8 for 2 to 8, or 0 for as many as fit")


Workers = Annotated[int | tuple[int, int], BeforeValidator(_number_of_workers)]
"""A number, or a minimum and a maximum: (2, 8), as text "2:8"."""

MAX_PROFILED = 20
"""Maximum updates per profile: for base, writing them takes minutes, in which all workers wait."""


def _profiled_updates(value: Any) -> tuple[int, int] | None:
    if value is None or value == "":
        return None
    match _bounds(value):
        case [first, last] if 1 <= first <= last < first + MAX_PROFILED:
            return first, last
    raise ValueError(f"{value} is not a range of at most {MAX_PROFILED} updates; write 100:110 for updates 100 to 110")


ProfiledUpdates = Annotated[tuple[int, int] | None, BeforeValidator(_profiled_updates)]
"""The first and last update to profile: (100, 110), as text "100:110"; None or "": none."""


class Settings(BaseModel):
    """Base class of all settings: frozen; rejects unknown fields, infinity and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def identity(self) -> dict[str, Any]:
        """Returns the fields that determine the output, as JSON values."""
        hidden = {
            name
            for name, field in type(self).model_fields.items()
            if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("in_fingerprint") is False
        }
        return self.model_dump(mode="json", exclude=hidden)


Suspicion = Literal["duplicate", "copy", "numbers"]


class CleaningSettings(Settings):
    """Rules for dropping training pairs. Lengths are counted in words, separated by spaces; if a side is written
    without spaces, in characters, five per allowed word."""

    max_words: Count = 250
    max_ratio: float = Field(9.0, ge=1, le=1e6)
    """Maximum ratio of the longer side to the shorter one."""
    drop: tuple[Suspicion, ...] = ()
    """Which of these to drop, beside counting them: repetitions of a pair, copies of the source, pairs whose sides have
    other numbers."""
    shard_pairs: Count = 100_000
    """Pairs read for a shard of the corpus, before any is dropped; generated text has shards of its own."""


class VocabularySettings(Settings):
    """Joint byte-pair encoding (§5.1)."""

    size: int = Field(37_000, ge=8, le=1_000_000)
    """Number of pieces, including four special ones."""
    sample_pairs: Count = 2_000_000
    """Maximum number of pairs to learn from, spread evenly over the training shards."""
    character_coverage: float = Field(0.9999, ge=0.98, le=1)
    """Share of the text covered by the most frequent characters, which become pieces. sentencepiece allows no less."""
    byte_fallback: bool = True
    """Use 256 pieces for bytes, so that other characters are spelled in UTF-8 instead of unknown."""

    def without_word_spaces(self) -> "VocabularySettings":
        """Returns the settings for text that includes a language with thousands of characters, such as Chinese.

        Adds 2,000 pieces and uses sentencepiece's recommended coverage; the rarest characters are spelled in bytes.
        """
        changes = {"size": self.size + 2000, "character_coverage": 0.9995, "byte_fallback": True}
        return self.model_copy(update=changes)


class EncodingSettings(Settings):
    """Conversion of text to token ids."""

    max_tokens: int = Field(256, ge=2, le=LONGEST_TOKENS)
    """Training pairs with a longer side, END_ID included, are excluded and counted; dev and test keep every pair."""


class TrainingSettings(Settings):
    """One training run (§5.2 to §5.4)."""

    model: TransformerConfig = TransformerConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    updates: Count = 100_000
    """Steps of the optimizer (§5.2)."""
    budget_tokens: Count = 25_000
    """Mean number of tokens of an update's fuller side, source or target (§5.1)."""
    mixes_lengths: bool = False
    """Each update has sentences of all lengths; the paper's has those of approximately one length (§5.1)."""
    seed: Seed = 1
    dtype: Dtype = "auto"
    """auto, float32 or bfloat16; auto: the faster on the machine."""
    exact_reduction: bool = False
    """Sum gradients in a fixed order, in passes of an eighth of the update, and use only deterministic kernels on GPUs:
    bit-identical results for 1 to 8 workers. On GPUs, nothing else is reproducible, not even after an interruption."""
    checkpoint_updates: Count = round(10 * 60 / 0.4)
    """Updates between checkpoints (§6.1: 10 minutes; §5.2: 0.4 s per update of base, so 1,500)."""
    keep_checkpoints: Count = 5
    """Number of last checkpoints that a finished run retains; `kept_updates` lists them."""
    validation_updates: Count = 1000
    """Updates between validations on the dev set."""
    log_updates: Count = not_in_fingerprint(200)
    """Updates between metrics lines: every few seconds on fast GPUs, which wait for the host meanwhile."""
    workers: Workers = not_in_fingerprint(0)
    """Number of training processes; 0: one per CPU or GPU of the cluster, at most one per unit of an update; "2:8":
    elastic, from 2 to 8. The updates do not depend on it."""
    pass_tokens: int = not_in_fingerprint(0, ge=0, le=MAX_COUNT)
    """Tokens a side that a worker computes at once, about; 0: as many as its memory holds, on a CPU up to 4,096."""
    threads: int = not_in_fingerprint(1, ge=0, le=4096)
    """CPU threads per worker; 0: two, or where a table trains several models, one in a single worker each."""
    device: Device = not_in_fingerprint("auto")
    """auto, cpu or gpu; auto: GPUs if there are any."""
    gpu_share: GpuShare = not_in_fingerprint(1.0)
    """Share of a GPU that a single worker reserves, so that other models use the rest. Several have one GPU each."""
    speed: Literal["auto", "plain"] = not_in_fingerprint("auto")
    """auto: on GPUs, use each optimisation that works: pack batches (in bfloat16), compile layers (with Triton,
    without `exact_reduction`), and launch a pass as one CUDA graph. plain: none of these, as on CPUs."""
    profile_updates: ProfiledUpdates = not_in_fingerprint(None)
    """Updates to profile with torch.profiler at rank 0 (`pipeline.training.profiling`)."""

    @property
    def worker_bounds(self) -> tuple[int, int]:
        """The fewest and most workers, the same unless elastic; 0 if unset."""
        return self.workers if isinstance(self.workers, tuple) else (self.workers, self.workers)

    @property
    def cpus_per_worker(self) -> int:
        """CPUs that a worker reserves, one a thread."""
        return self.threads or 2

    @property
    def gpus_per_worker(self) -> float:
        """GPUs that a worker reserves if it computes on GPUs."""
        return self.gpu_share if self.worker_bounds[1] <= 1 else 1.0

    @property
    def units(self) -> int:
        """The number of units of an update (`pipeline.text.batching`): of 256 tokens or more, but at least two."""
        return min(64, max(2, self.budget_tokens // 256))

    @property
    def most_workers(self) -> int:
        """The number of workers among which an update can be divided."""
        return min(EXACT_PARTS, self.units) if self.exact_reduction else self.units

    @property
    def kept_updates(self) -> tuple[int, ...]:
        """The updates whose checkpoints are retained: the last multiples of an interval, and the end."""
        multiples = range(self.checkpoint_updates, self.updates, self.checkpoint_updates)
        return (*multiples[max(0, len(multiples) + 1 - self.keep_checkpoints) :], self.updates)

    @model_validator(mode="after")
    def _possible(self) -> "TrainingSettings":
        if self.profile_updates and self.profile_updates[1] > self.updates:
            first, last = self.profile_updates
            raise ValueError(f"profile_updates is {first}:{last}, but the run ends at update {self.updates}")
        return self


class AveragingSettings(Settings):
    """Checkpoint averaging (§6.1)."""

    last: Count = 5
    """Number of checkpoints in the mean, up to the last."""


class DecodingSettings(Settings):
    """Beam search (§6.1)."""

    beam_size: BeamSize = SearchConfig.beam_size
    length_penalty: LengthPenalty = SearchConfig.length_penalty
    """α: log-probabilities are divided by ((5 + length) / 6)^α; 0: not divided."""
    max_extra_tokens: int = Field(SearchConfig.max_extra_tokens, ge=1, le=1_000_000)
    """The output may be this many tokens longer than the input."""
    well_formed: bool = False
    """Constrain outputs to trees with as many words as the input (§6.3, for parsers: `pipeline.parsing.constraint`)."""
    dtype: Dtype = "auto"
    """As that of training."""
    batch_tokens: int = not_in_fingerprint(0, ge=0, le=MAX_COUNT)
    """Source tokens decoded at once, beams not counted; 0: 4,096 on a CPU, up to 16,384 on a GPU as memory allows."""
    workers: int = not_in_fingerprint(0, ge=0, le=MAX_WORKERS)
    """Number of Ray actors, shared by the test sets; 0: one per CPU or four per GPU, but no more than the
    sentences can occupy."""
    threads: int = not_in_fingerprint(1, ge=1, le=4096)
    """CPU threads per worker."""
    device: Device = not_in_fingerprint("auto")
    """As that of training."""
    gpu_share: GpuShare = not_in_fingerprint(1.0)
    """The most of a GPU that a worker reserves; by default, workers divide the GPUs among them."""

    def beside(self, training: TrainingSettings, **changes: Any) -> "DecodingSettings":
        """Returns these settings with a run's share of a GPU, if that is less, and with `changes`."""
        return self.model_copy(update={"gpu_share": min(self.gpu_share, training.gpus_per_worker), **changes})

    def searching_like(self, chosen: "DecodingSettings") -> "DecodingSettings":
        """Returns these settings with a chosen search's beam, length penalty and maximum length."""
        search = chosen.model_dump(include={"beam_size", "length_penalty", "max_extra_tokens"})
        return DecodingSettings(**{**self.model_dump(), **search})

    @model_validator(mode="after")
    def _possible(self) -> "DecodingSettings":
        if self.well_formed and self.max_extra_tokens < 2:
            raise ValueError("a tree has at least two symbols more than words; set max_extra_tokens to 2 or more")
        return self


PARSING = DecodingSettings(beam_size=21, length_penalty=0.3, max_extra_tokens=300)
"""The paper's search for parsing (§6.3)."""


class Setting(NamedTuple):
    """A setting of a profile."""

    name: str
    value: Any
    meaning: str
    """The first sentence of its documentation; empty if the name says it."""

    @property
    def text(self) -> str:
        """The value as --set takes it; empty for None."""
        return "" if self.value is None else json.dumps(self.value, default=str, ensure_ascii=False).strip('"')


@cache
def _meanings(kind: type) -> dict[str, str]:
    """Returns the first sentence of the docstring of each field of a class."""
    found: dict[str, str] = {}
    ours = [each for each in kind.__mro__ if each.__module__.startswith(("model.", "pipeline.", "workflows."))]
    for base in reversed(ours):
        (defined,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = defined.body if isinstance(defined, ast.ClassDef) else []
        for field, said in pairwise(body):
            match field, said:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = re.split(r"\. (?=[A-Z])", " ".join(text.split()))[0].removesuffix(".")
    return found


def settings_in(value: Any, hidden: Collection[str] = (), name: str = "", meaning: str = "") -> Iterator[Setting]:
    """Yields nested settings in their order, but for `hidden` ones and vocabulary_size, which follows from others."""
    kind: Any = type(value)
    members = dict[str, Any]()
    if isinstance(value, Settings):
        members = {each: getattr(value, each) for each in kind.model_fields if each not in hidden}
    elif is_dataclass(value):
        members = {each.name: getattr(value, each.name) for each in fields(value) if each.name != "vocabulary_size"}
    elif isinstance(value, Mapping):
        members = dict(value)
    if not members:
        yield Setting(name, value, meaning)
    for member, inner in members.items():
        said = "" if isinstance(value, Mapping) else _meanings(kind).get(member, "")
        yield from settings_in(inner, hidden, f"{name}.{member}" if name else member, said)


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a user's TOML file, also one that PowerShell's `>` has written. Raises UserError if it is none."""
    try:
        content = path.read_bytes()
        is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return tomllib.loads(content.decode("utf-16" if is_utf16 else "utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from None
    except ValueError as error:  # TOML syntax or UTF-8; the message includes line and column
        raise UserError(f"{path} is not valid TOML: {error}") from None


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested settings: {"model": {"d_k": 64}} -> {"model.d_k": 64}."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return flat


def differing(settings: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the settings that both have with different values, flattened: {"model.d_k": (64, 32)}."""
    flat, other = flatten(settings), flatten(others)
    return {name: (value, other[name]) for name, value in flat.items() if name in other and other[name] != value}
