"""The translators that `benchmarks.decoding` compares: ours and CTranslate2."""

import time
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name

from pipeline.memory import peak_memory_bytes
from pipeline.settings import DecodingSettings


class Translator:
    """An engine's translator from text to text, on one thread or on a GPU ("cuda"), in the dtype of the settings.

    Imports only what it needs, since its process's memory is measured. Raises UserError if the model is unusable, or if
    the engine does not support the dtype on the device.
    """

    def __init__(self, kind: str, folder: Path, settings: DecodingSettings, device: str) -> None:
        import torch

        torch.set_num_threads(1)
        self.translator = resolve_name(kind)(folder, settings, device)

    def timed(self, lines: Sequence[str]) -> tuple[list[tuple[str, int]], float]:
        """Returns each line's translation and number of tokens, including END_ID, and the CPU time in seconds."""
        before_s = time.process_time()
        done = [(each.text, each.n_tokens) for each in self.translator.translations(lines)]
        return done, time.process_time() - before_s

    def peak_memory_gb(self) -> float:
        """Returns the process's peak memory so far, without GPU memory."""
        return peak_memory_bytes() / 1e9
