"""The translators that `aiayn bench decode` compares: ours, CTranslate2, and `generate` of Hugging Face's MarianMT.

All have the same weights, vocabulary and sentences, and are timed from text to text. The other two run as their users
would run them: CTranslate2 sorts and batches by itself, and `generate` is given batches of sentences of similar length.
Their length penalty is |y|^α, not the paper's ((5 + |y|) / 6)^α; `unpenalized` searches at α = 0, where all three look
for the same output.

A contender imports only what it needs, because the memory of its process is measured.

Shapes: B batch, S source length, T target length.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from model.config import END_ID, PAD_ID
from pipeline.errors import UserError
from pipeline.memory import peak_memory_bytes
from pipeline.settings import DecodingSettings
from pipeline.text.vocabulary import load
from workflows.benchmarks.processes import OUT_OF_MEMORY, ContenderError

if TYPE_CHECKING:  # the module imports torch
    from model.search import Hypothesis


@dataclass(frozen=True)
class DecodingWorkload:
    """The input that every contender is given."""

    checkpoint_folder: Path
    exported_folder: Path
    """The same model in CTranslate2's format, written by the first contender that needs it."""
    settings: DecodingSettings
    device: Literal["cpu", "gpu"]

    @property
    def device_name(self) -> str:
        """The device's name in torch and CTranslate2."""
        return "cuda" if self.device == "gpu" else "cpu"

    @property
    def unpenalized(self) -> DecodingSettings:
        """The settings with length penalty 0."""
        return self.settings.model_copy(update={"length_penalty": 0.0})


class WorkerLayout(NamedTuple):
    """How the cores are used: sentences are split over workers, a worker's matrix products over threads."""

    workers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.workers} × {self.threads}"


class Output(NamedTuple):
    """The translation of one sentence."""

    text: str
    n_tokens: int
    """Tokens of the output, including END_ID."""


class DecodingContender:
    """A translator on `layout.threads` threads: one worker of the layout, or all of them in one process."""

    SHARES_WORK = False
    """True if one process runs all workers of a layout."""
    BATCH_SIZES: tuple[int | None, ...] = (16, 32, 64)
    """Candidate batch sizes, in sentences; the fastest is used."""

    def __init__(self, workload: DecodingWorkload, layout: WorkerLayout, dtype: str) -> None:
        self.workload = workload
        self.vocabulary = load(workload.checkpoint_folder / "joint.model")

    def translate(self, lines: Sequence[str], batch_size: int | None) -> list[Output]:
        """Translates each line; no line is blank."""
        raise NotImplementedError

    def peak_memory_gb(self) -> float:
        """Returns the process's peak memory so far, GPU memory not included."""
        return peak_memory_bytes() / 1e9


class OurTranslator(DecodingContender):
    """Our `Translator`, which forms batches by its own rule. Raises UserError if the checkpoint is unusable."""

    BATCH_SIZES = (None,)

    def __init__(self, workload: DecodingWorkload, layout: WorkerLayout, dtype: str) -> None:
        super().__init__(workload, layout, dtype)
        import torch

        from pipeline.evaluation.translation import Translator

        torch.set_num_threads(layout.threads)
        settings = workload.settings.model_copy(update={"precision": dtype})
        self.translator = Translator(workload.checkpoint_folder, settings, workload.device_name)

    def translate(self, lines: Sequence[str], batch_size: int | None) -> list[Output]:
        return [Output(done.text, done.n_tokens) for done in self.translator.translations(lines)]

    def hypotheses(self, lines: Sequence[str], batch_size: int | None) -> "list[Hypothesis]":
        """Returns the best hypothesis for each line at length penalty 0, computed in float32."""
        from pipeline.evaluation.translation import Translator
        from pipeline.text.segmentation import encode_lines

        exact = self.workload.unpenalized.model_copy(update={"precision": "float32"})
        translator = Translator(self.workload.checkpoint_folder, exact, self.workload.device_name)
        return [found[0] for found in translator.search(encode_lines(self.vocabulary, lines))]


class CTranslate2(DecodingContender):
    """CTranslate2's Translator with all workers in one process, computing in `dtype`: float32, bfloat16, int8, ...

    Raises ContenderError if CTranslate2 refuses the type, the device or the model.
    """

    SHARES_WORK = True

    def __init__(self, workload: DecodingWorkload, layout: WorkerLayout, dtype: str) -> None:
        super().__init__(workload, layout, dtype)
        import ctranslate2

        try:
            if not workload.exported_folder.exists():
                from pipeline.export.ctranslate2 import export_ctranslate2

                export_ctranslate2(workload.checkpoint_folder, workload.exported_folder)
            self.translator = ctranslate2.Translator(
                str(workload.exported_folder),
                device=workload.device_name,
                compute_type=dtype,
                inter_threads=layout.workers,
                intra_threads=layout.threads,
            )
        except (UserError, ValueError, RuntimeError) as error:
            raise ContenderError(f"refused: {error}") from None

    def translate(self, lines: Sequence[str], batch_size: int | None) -> list[Output]:
        outputs = self._search(lines, batch_size, length_penalty=self.workload.settings.length_penalty)
        texts = self.vocabulary.decode(outputs)
        return [Output(text, len(pieces) + 1) for text, pieces in zip(texts, outputs, strict=True)]

    def unpenalized(self, lines: Sequence[str], batch_size: int | None) -> list[list[int]]:
        """Returns the tokens of the best output for each line at length penalty 0, without END_ID.

        Outputs that CTranslate2 may produce but our search never does are forbidden here.
        """
        from pipeline.export.ctranslate2 import SAME_SEARCH

        outputs = self._search(lines, batch_size, **SAME_SEARCH)
        return [self.vocabulary.piece_to_id(pieces) for pieces in outputs]

    def log_probabilities(self, lines: Sequence[str], outputs: Sequence[Sequence[int]]) -> list[float]:
        """Returns the log-probability in nats of a given output for each line; END_ID is implied and counted."""
        targets = [self.vocabulary.id_to_piece(list(output)) for output in outputs]
        with _refusals():
            scored = self.translator.score_batch(self._pieces(lines), targets, max_batch_size=32)
        return [math.fsum(result.log_probs) for result in scored]

    def _search(self, lines: Sequence[str], batch_size: int | None, **search_options: Any) -> list[list[str]]:
        sources, settings = self._pieces(lines), self.workload.settings
        longest_tokens = max(map(len, sources), default=0) + 1  # CTranslate2 has one limit for all and adds END_ID
        with _refusals():
            found = self.translator.translate_batch(
                sources,
                max_batch_size=batch_size or 0,
                batch_type="examples",
                beam_size=settings.beam_size,
                max_decoding_length=longest_tokens + settings.max_extra_tokens,
                **search_options,
            )
        return [result.hypotheses[0] for result in found]

    def _pieces(self, lines: Sequence[str]) -> list[list[str]]:
        pieces: list[list[str]] = self.vocabulary.encode(list(lines), out_type=str)
        return pieces


@contextmanager
def _refusals() -> Iterator[None]:
    """Turns RuntimeError into ContenderError: CTranslate2 finds a GPU library missing only once it computes."""
    try:
        yield
    except RuntimeError as error:
        no_memory = any(words in str(error) for words in ("out of memory", "failed to allocate memory"))
        reason = OUT_OF_MEMORY if no_memory else f"refused: {error}"
        raise ContenderError(reason) from None


class MarianGenerate(DecodingContender):
    """MarianMTModel's `generate` with our weights in `dtype`, float32 or bfloat16.

    Raises ContenderError if MarianMT cannot express the model.
    """

    def __init__(self, workload: DecodingWorkload, layout: WorkerLayout, dtype: str) -> None:
        super().__init__(workload, layout, dtype)
        import torch
        import transformers

        from pipeline.evaluation.translation import load_model
        from workflows.benchmarks.peer_models import Marian, copy_weights

        torch.set_num_threads(layout.threads)
        transformers.logging.set_verbosity_error()
        ours = load_model(workload.checkpoint_folder)
        peer = Marian(ours.config)
        try:
            copy_weights(ours, peer)
        except ValueError as error:
            raise ContenderError(f"refused: {error}") from None
        self.model = peer.marian.eval().to(workload.device_name, getattr(torch, dtype))

    def translate(self, lines: Sequence[str], batch_size: int | None) -> list[Output]:
        from pipeline.text.encoding import decode_ids

        outputs = self._generate(lines, batch_size, self.workload.settings)
        texts = decode_ids(self.vocabulary, outputs)
        return [Output(text, len(tokens) + 1) for text, tokens in zip(texts, outputs, strict=True)]

    def unpenalized(self, lines: Sequence[str], batch_size: int | None) -> list[list[int]]:
        """Returns the tokens of the best output for each line at length penalty 0, without END_ID."""
        return self._generate(lines, batch_size, self.workload.unpenalized)

    def _generate(self, lines: Sequence[str], batch_size: int | None, settings: DecodingSettings) -> list[list[int]]:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        from pipeline.text.segmentation import encode_lines

        sources = encode_lines(self.vocabulary, lines)
        rows = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
        size = batch_size or len(rows)
        best: dict[int, list[int]] = {}
        for first in range(0, len(rows), size):
            batch = rows[first : first + size]
            source_BS = pad_sequence([torch.tensor(sources[i]) for i in batch], batch_first=True, padding_value=PAD_ID)
            output_BT = self.model.generate(
                source_BS.to(self.model.device),
                attention_mask=(source_BS != PAD_ID).to(self.model.device),
                num_beams=settings.beam_size,
                length_penalty=settings.length_penalty,
                max_new_tokens=source_BS.shape[1] + settings.max_extra_tokens,
                do_sample=False,
                use_cache=True,
            )
            for i, tokens in zip(batch, output_BT[:, 1:].tolist(), strict=True):
                best[i] = tokens[: tokens.index(END_ID)] if END_ID in tokens else tokens
        return [best[i] for i in range(len(lines))]
