"""The translators that `benchmarks.decoding` compares, on one thread or on a GPU ("cuda"), in the settings' dtype.

Each imports only what it needs, since its process's memory is measured.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.memory import peak_memory_bytes
from pipeline.settings import DecodingSettings

BATCH = {"cpu": 32, "cuda": 512}  # sentences that CTranslate2 searches at once: on a GPU about as many as we do


class Ours:
    """Our translator."""

    def __init__(self, folder: Path, settings: DecodingSettings, device: str) -> None:
        import torch

        from pipeline.evaluation.translation import Translator

        torch.set_num_threads(1)
        self._translator = Translator(folder, settings, device)

    def outputs(self, lines: Sequence[str]) -> list[tuple[str, int]]:
        """Returns each line's translation and number of tokens, including END_ID."""
        return [(each.text, each.n_tokens) for each in self._translator.translations(lines)]

    def timed(self, lines: Sequence[str]) -> tuple[list[tuple[str, int]], float]:
        """Returns `outputs` and their CPU time in seconds."""
        before_s = time.process_time()
        outputs = self.outputs(lines)
        return outputs, time.process_time() - before_s

    def peak_memory_gb(self) -> float:
        """Returns the process's peak memory so far, without GPU memory."""
        return peak_memory_bytes() / 1e9


class CTranslate2(Ours):
    """CTranslate2 with an exported model and our beam, α and longest output."""

    def __init__(self, folder: Path, settings: DecodingSettings, device: str) -> None:
        import ctranslate2
        from sentencepiece import SentencePieceProcessor

        from pipeline.export.ctranslate2 import SAME_SEARCH

        self._batch, self._max_extra_tokens = BATCH[device], settings.max_extra_tokens
        self._options = {**SAME_SEARCH, "length_penalty": settings.length_penalty, "beam_size": settings.beam_size}
        self._vocabulary = SentencePieceProcessor(model_file=str(folder / "joint.model"))
        self._model = ctranslate2.Translator(str(folder), device, compute_type=settings.dtype, intra_threads=1)

    def outputs(self, lines: Sequence[str]) -> list[tuple[str, int]]:
        """Returns each line's translation and number of tokens, including END_ID."""
        pieces, found = self._vocabulary.encode([*lines], out_type=str), dict[int, list[str]]()
        order = sorted(range(len(lines)), key=lambda i: len(pieces[i]))
        for first in range(0, len(lines), self._batch):  # of like lengths, since a call has one limit for all outputs
            rows = order[first : first + self._batch]
            longest = len(pieces[rows[-1]]) + 1 + self._max_extra_tokens
            results = self._model.translate_batch(
                [pieces[i] for i in rows], max_decoding_length=longest, **self._options
            )
            found |= zip(rows, (each.hypotheses[0] for each in results), strict=True)
        return [(self._vocabulary.decode(found[i]), len(found[i]) + 1) for i in range(len(lines))]
