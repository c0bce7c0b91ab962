"""Translation of lines by one process: sentencepiece, batches of similar length, beam search (§6.1).

    translator = Translator(folder, DecodingSettings(), "cpu")
    translator.translate(["Two dogs run .", ""])

A checkpoint is `model.safetensors`, `model.json` and `joint.model`. It computes in float32, whatever it was trained in.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence

from model.config import END_ID, PAD_ID, TransformerConfig
from model.search import beam_search
from model.transformer import Transformer
from pipeline.artifacts import Checkpoint
from pipeline.encoding import decode_ids, encode_lines
from pipeline.errors import UserError
from pipeline.settings import DecodingSettings
from pipeline.vocabulary import load

logger = logging.getLogger(__name__)

LONGEST_TOKENS = 1024
"""A longer source, END_ID counted, is translated in parts: attention takes memory by the square of the length."""


class Translation(NamedTuple):
    """The best output for one line."""

    text: str
    n_tokens: int
    """Tokens decoded, END_ID counted; 0 for a blank line."""


def load_model(folder: Path, device: str = "cpu") -> Transformer:
    """The model of a checkpoint, float32, in evaluation mode.

    Raises UserError where `model.json` or `model.safetensors` is missing, broken, or of another model.
    """
    path = folder / "model.safetensors"
    fields = Checkpoint(folder).read_json("model.json")
    try:
        model = Transformer(TransformerConfig(**fields))
    except (TypeError, ValueError) as error:
        raise UserError(f"{folder / 'model.json'} describes no model ({error}); choose another checkpoint") from None
    try:
        weights = load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {folder} is not a Checkpoint") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); make the checkpoint again") from None
    try:
        model.load_state_dict(weights)
    except RuntimeError:
        raise UserError(
            f"{path} does not hold the weights that model.json describes; choose files of one model"
        ) from None
    return model.to(device).eval()


class Translator:
    """A model and its vocabulary, ready to translate. Raises UserError where the checkpoint is no good."""

    def __init__(self, checkpoint_folder: Path, settings: DecodingSettings, device: str = "cpu") -> None:
        self.settings, self.device = settings, device
        self._model = load_model(Path(checkpoint_folder), device)
        self._vocabulary = load(Path(checkpoint_folder) / "joint.model")
        config = self._model.config
        if len(self._vocabulary) != config.vocabulary_size:
            raise UserError(
                f"{checkpoint_folder}: joint.model has {len(self._vocabulary)} pieces and the model "
                f"{config.vocabulary_size}; choose a checkpoint whose files belong together"
            )
        learned = config.positions == "learned"
        self._longest_tokens = min(LONGEST_TOKENS, config.max_positions) if learned else LONGEST_TOKENS

    def translate(self, lines: Sequence[str]) -> list[str]:
        """One line of text for each line, in order; a blank line gives an empty one."""
        return [translation.text for translation in self.translations(lines)]

    def translations(self, lines: Sequence[str]) -> list[Translation]:
        """As `translate`, with the number of tokens. The result of a line does not depend on the others."""
        parts: list[list[int]] = []
        line_of_part: list[int] = []
        for i, tokens in enumerate(encode_lines(self._vocabulary, lines)):
            if lines[i].strip():
                cut = self._cut(tokens)
                if len(cut) > 1:
                    logger.warning("line %d has %d tokens and is translated in %d parts", i + 1, len(tokens), len(cut))
                parts += cut
                line_of_part += [i] * len(cut)
        outputs: list[list[list[int]]] = [[] for _ in lines]
        found = self._search(parts)
        for i, output in zip(line_of_part, found, strict=True):
            outputs[i].append(output)
        return [
            Translation(" ".join(decode_ids(self._vocabulary, output)), sum(len(tokens) + 1 for tokens in output))
            for output in outputs
        ]

    def _search(self, sources: list[list[int]]) -> list[list[int]]:
        """The best output of each source, both token ids; batch by batch, the longest first."""
        settings = self.settings
        best: list[list[int]] = [[] for _ in sources]
        for rows in batches([len(source) for source in sources], settings.batch_tokens):
            source_BS = pad_sequence([torch.tensor(sources[i]) for i in rows], batch_first=True, padding_value=PAD_ID)
            found = beam_search(
                self._model,
                source_BS.to(self.device),
                beam_size=settings.beam_size,
                length_penalty=settings.length_penalty,
                max_extra_tokens=settings.max_extra_tokens,
            )
            for i, hypotheses in zip(rows, found, strict=True):
                best[i] = hypotheses[0].tokens
        return best

    def _cut(self, tokens: list[int]) -> list[list[int]]:
        """Parts of at most the longest length, each ending in END_ID, cut before a word where there is one."""
        tokens, limit = tokens[:-1], self._longest_tokens - 1
        parts = []
        while len(tokens) > limit:
            words = (i for i in range(limit, limit // 2, -1) if self._vocabulary.id_to_piece(tokens[i]).startswith("▁"))
            end = next(words, limit)
            parts.append([*tokens[:end], END_ID])
            tokens = tokens[end:]
        return [*parts, [*tokens, END_ID]]


def batches(lengths: Iterable[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers, the longest first, in batches of at most `batch_tokens` with padding, or of one longer row."""
    batch: list[int] = []
    longest = 0
    for row, length in sorted(enumerate(lengths), key=lambda item: -item[1]):
        if batch and longest * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        longest = longest if batch else length
        batch.append(row)
    if batch:
        yield batch
