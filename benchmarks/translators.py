"""The translators that `benchmarks.decoding` compares: ours, CTranslate2, and `generate` of Hugging Face's MarianMT.

All have the same weights, vocabulary and sentences, and translate text to text on one thread, or on a GPU. CTranslate2
runs as in `aiayn translate --engine ctranslate2`; `generate` is given batches of sentences of similar length, and its
length penalty is |y|^α, not the paper's ((5 + |y|) / 6)^α.

A translator imports only what it needs, because the memory of its process is measured. Shapes: B batch,
S source length, T target length.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from model.config import END_ID, PAD_ID
from pipeline.memory import peak_memory_bytes
from pipeline.settings import DecodingSettings, Engine
from pipeline.text.vocabulary import load


class Workload(NamedTuple):
    """What every translator is given."""

    checkpoint_folder: Path
    exported_folder: Path
    """The same model in CTranslate2's format."""
    settings: DecodingSettings
    device: str
    """The device's name in torch and CTranslate2: cpu or cuda."""


class Translator:
    """A translator in `dtype`: float32, bfloat16, float16 or int8."""

    BATCH_SIZES: tuple[int | None, ...] = (16, 32, 64)
    """Candidate batch sizes, in sentences; the fastest is used."""

    def __init__(self, workload: Workload, dtype: str) -> None:
        self.settings = workload.settings
        self.vocabulary = load(workload.checkpoint_folder / "joint.model")

    def translate(self, lines: Sequence[str], batch_size: int | None) -> list[tuple[str, int]]:
        """Translates each line, none of them blank, and counts the tokens of its output, END_ID included."""
        raise NotImplementedError

    def timed(self, lines: Sequence[str], batch_size: int | None) -> tuple[list[tuple[str, int]], float]:
        """Returns the result of `translate` and the seconds of CPU time it took."""
        before_s = time.process_time()
        return self.translate(lines, batch_size), time.process_time() - before_s

    def peak_memory_gb(self) -> float:
        """Returns the process's peak memory so far, GPU memory not included."""
        return peak_memory_bytes() / 1e9


class OurTranslator(Translator):
    """Our `Translator`, which forms batches by its own rule. Raises UserError if the checkpoint is unusable."""

    BATCH_SIZES = (None,)
    ENGINE: Engine = "torch"

    def __init__(self, workload: Workload, dtype: str) -> None:
        super().__init__(workload, dtype)
        import torch

        from pipeline.evaluation.ctranslate2 import translator_of

        torch.set_num_threads(1)
        settings = self.settings.model_copy(update={"engine": self.ENGINE, "dtype": dtype})
        folder = workload.checkpoint_folder if self.ENGINE == "torch" else workload.exported_folder
        self.translator = translator_of(folder, settings, workload.device)

    def translate(self, lines: Sequence[str], batch_size: int | None) -> list[tuple[str, int]]:
        return [(done.text, done.n_tokens) for done in self.translator.translations(lines)]


class CTranslate2(OurTranslator):
    """The same with CTranslate2's search. Raises UserError if it does not compute in the type on the device."""

    ENGINE = "ctranslate2"


class MarianGenerate(Translator):
    """MarianMTModel's `generate` with our weights. Raises ValueError if MarianMT cannot express the model."""

    def __init__(self, workload: Workload, dtype: str) -> None:
        super().__init__(workload, dtype)
        import torch
        import transformers

        from benchmarks.peers import Marian, copy_weights
        from pipeline.evaluation.translation import load_model

        torch.set_num_threads(1)
        transformers.logging.set_verbosity_error()
        ours = load_model(workload.checkpoint_folder)
        peer = Marian(ours.config)
        copy_weights(ours, peer)
        self.model = peer.marian.eval().to(workload.device, getattr(torch, dtype))

    def translate(self, lines: Sequence[str], batch_size: int | None) -> list[tuple[str, int]]:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        from pipeline.text.encoding import decode_ids
        from pipeline.text.segmentation import encode_lines

        sources = encode_lines(self.vocabulary, lines)
        rows = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
        size = batch_size or len(rows)
        outputs: list[list[int]] = [[]] * len(rows)
        for first in range(0, len(rows), size):
            batch = rows[first : first + size]
            source_BS = pad_sequence([torch.tensor(sources[i]) for i in batch], batch_first=True, padding_value=PAD_ID)
            output_BT = self.model.generate(
                source_BS.to(self.model.device),
                attention_mask=(source_BS != PAD_ID).to(self.model.device),
                num_beams=self.settings.beam_size,
                length_penalty=self.settings.length_penalty,
                max_new_tokens=source_BS.shape[1] + self.settings.max_extra_tokens,
                do_sample=False,
                use_cache=True,
            )
            for i, tokens in zip(batch, output_BT[:, 1:].tolist(), strict=True):
                outputs[i] = tokens[: tokens.index(END_ID)] if END_ID in tokens else tokens
        texts = decode_ids(self.vocabulary, outputs)
        return [(text, len(tokens) + 1) for text, tokens in zip(texts, outputs, strict=True)]
