"""Translates with CTranslate2, a C++ engine that is faster on CPUs and supports int8 weights.

    translator = CTranslate2Translator(exported.folder, DecodingSettings(engine="ctranslate2", dtype="int8"))
    translator.translate(["Two dogs run ."])

Its search is close to `model.search`, but its options cannot express all of the paper's:

- Its `length_penalty` divides by |y|^α, not ((5 + |y|) / 6)^α. So it runs without one, which keeps the same
  hypotheses, until `beam_size` of them have finished; these are reranked by the paper's penalty. Our own search
  continues until no open hypothesis can win. Its `coverage_penalty` is a term that the paper does not use.
- `max_decoding_length` is one number per batch, hence LENGTH_MULTIPLE, and truncates outputs without END_ID.
- The probability of forbidden tokens (SAME_SEARCH) goes to the others, which slightly raises log-probabilities.
- It has no constraints like `pipeline.parsing.constraint`, so parsers use torch.
"""

from collections.abc import Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from model.search import Hypothesis, penalty
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.hardware import dtype_name, dtype_of
from pipeline.settings import LONGEST_TOKENS, DecodingSettings
from pipeline.store.artifacts import CTranslate2Model
from pipeline.text.vocabulary import load

SAME_SEARCH = MappingProxyType(
    {"length_penalty": 0, "disable_unk": True, "suppress_sequences": [["<pad>"], ["<s>"]], "min_decoding_length": 0}
)
"""Options of `translate_batch` whose defaults would penalise lengths and allow <unk>."""
BATCH_SENTENCES = 32
"""Sentences per thread and batch."""
LENGTH_MULTIPLE = 16
"""Source lengths are rounded up to this multiple to limit outputs, so that no limit depends on the batch."""
MAX_OUTPUT_TOKENS = 2 * LONGEST_TOKENS
"""Number of positions of an exported model with sinusoids."""


WANTED = "'ctranslate2>=4.8,<5'"


def installed(module: str) -> Any:
    """Imports a module of CTranslate2. Raises UserError if it is not installed or cannot be loaded."""
    try:
        return import_module(module)
    except (ImportError, OSError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "ctranslate2":
            raise UserError(f"CTranslate2 is not installed; pip install {WANTED}") from None
        words = " ".join(str(error).split())
        raise UserError(
            f"CTranslate2 cannot be loaded ({words}); reinstall it: pip install --force-reinstall {WANTED}"
        ) from None


class CTranslate2Translator(Translator):
    """A `Translator` that uses an exported model, on `settings.threads` CPUs.

    Raises UserError if CTranslate2 is not installed or does not support the settings' dtype on the device.
    """

    def _load(self, folder: Path) -> None:
        ctranslate2 = installed("ctranslate2")
        kind, _, number = self.device.partition(":")
        available = ctranslate2.get_supported_compute_types(kind)
        dtype = dtype_name(dtype_of(self.settings.dtype, self.device))
        if self.settings.dtype == "auto" and dtype not in available:
            dtype = "float32"
        if dtype not in available:
            raise UserError(f"CTranslate2 does not support {dtype} here, only {', '.join(sorted(available))}")
        self.dtype = getattr(torch, dtype)
        self.config, self._vocabulary = CTranslate2Model(folder).config, load(folder / "joint.model")
        self._model = ctranslate2.Translator(
            str(folder),
            device=kind,
            device_index=int(number or 0),
            compute_type=dtype,
            inter_threads=self.settings.threads,
            intra_threads=1,
        )

    def search(self, sources: Sequence[list[int]], n: int = 1) -> list[list[Hypothesis]]:
        """Returns the `n` best outputs of each source (token ids ending in END_ID).

        They are the best, by our length penalty, of the `beam_size` outputs that CTranslate2 returns. Raises UserError
        if `n` is larger than the beam.
        """
        if n > self.settings.beam_size:
            raise UserError(
                f"{n} translations per line were requested, but CTranslate2 finds only beam_size = "
                f"{self.settings.beam_size}; request fewer or set beam_size to {n}"
            )

        def rounded(row: int) -> int:
            return -(-len(sources[row]) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE

        settings, pieces = self.settings, self._vocabulary.id_to_piece
        running: list[tuple[int, Any]] = []
        for length, rows in groupby(sorted(range(len(sources)), key=lambda row: -len(sources[row])), rounded):
            limit = min(length + settings.max_extra_tokens, self._max_positions, MAX_OUTPUT_TOKENS)
            batch = list(rows)
            results = self._model.translate_batch(
                [pieces(sources[i][:-1]) for i in batch],
                asynchronous=True,
                max_batch_size=BATCH_SENTENCES,
                beam_size=settings.beam_size,
                num_hypotheses=settings.beam_size if settings.length_penalty else n,
                max_decoding_length=limit,
                return_scores=True,
                **SAME_SEARCH,
            )
            running += zip(batch, results, strict=True)
        best: list[list[Hypothesis]] = [[] for _ in sources]
        for i, result in running:
            outputs = result.result()
            for output, log_probability in zip(outputs.hypotheses, outputs.scores, strict=True):
                tokens = self._vocabulary.piece_to_id(output)
                score = log_probability / penalty(len(tokens) + 1, settings.length_penalty)
                best[i].append(Hypothesis(tokens, float(score), log_probability))
            best[i] = sorted(best[i], key=lambda hypothesis: -hypothesis.score)[:n]
        return best


def translator_of(folder: Path, settings: DecodingSettings, device: str = "cpu") -> Translator:
    """Loads a checkpoint, or an exported model for CTranslate2, with the settings' engine."""
    translator_class = CTranslate2Translator if settings.engine == "ctranslate2" else Translator
    return translator_class(folder, settings, device)
