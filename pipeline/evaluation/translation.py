"""Translates lines in one process: sentencepiece, batches of similar length, beam search (§6.1).

    translator = Translator(folder, DecodingSettings(), "cpu")
    translator.translate(["Two dogs run .", ""])
    translator.n_best(["Two dogs run ."], 4)[0][3].score

A checkpoint is `model.safetensors`, `model.json` and `joint.model` (within a run, the run's). The model computes in the
settings' `dtype`, regardless of its training dtype: by default bfloat16 if the CPU gains by it, else float32.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from sentencepiece import SentencePieceProcessor
from torch.nn.utils.rnn import pad_sequence

from model.architectures import make_decoder, make_model
from model.config import END_ID, PAD_ID, TransformerConfig
from model.flops import count_parameters
from model.search import SEARCH_ROWS, Hypothesis, beam_search
from model.transformer import EncoderDecoder
from pipeline.artifacts import Checkpoint
from pipeline.errors import UserError
from pipeline.hardware import call_mkl_once, dtype_of
from pipeline.memory import is_out_of_memory
from pipeline.parsing.constraint import TreeTokens, WellFormed, tree_tokens
from pipeline.settings import LONGEST_TOKENS, DecodingSettings
from pipeline.text.encoding import decode_ids
from pipeline.text.normalisation import normalised
from pipeline.text.segmentation import encode_lines
from pipeline.text.vocabulary import SPACE_SIGN, load

logger = logging.getLogger(__name__)

BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}
"""Default number of source tokens decoded at once, by device type, if memory allows."""
GPU_MEMORY_SHARE = 0.8
"""Part of its share of a GPU's memory that a translator plans to use."""
CUDA_CONTEXT_BYTES = 10**9
FLOAT32_BYTES = 4
DECODED_PER_SOURCE_TOKEN = 16
"""Limits the tokens decoded by a batch to this multiple of `batch_tokens`. Otherwise the keys and values of outputs of
short lines, which may grow to many times the input, would dominate memory."""


class Translation(NamedTuple):
    """One translation of one line."""

    text: str
    n_tokens: int
    """Decoded tokens, END_ID included; 0 for a blank line."""
    score: float = 0.0
    """log_probability / penalty (model.search), highest for the best translation; summed over the parts of a line."""
    log_probability: float = 0.0
    """In nats, END_ID included; summed over the parts of a line."""


def load_model(folder: Path, device: str = "cpu") -> EncoderDecoder:
    """Loads a checkpoint's model in float32, in evaluation mode.

    On a CPU its weights are memory-mapped, copy on write, so processes that have loaded them share memory. Raises
    UserError if `model.json` or `model.safetensors` is missing, broken, not finite, or belongs to another model.
    """
    path = folder / "model.safetensors"
    call_mkl_once()
    model = make_model(Checkpoint(folder).config)
    try:
        weights = {name: weight.float() for name, weight in load_file(path).items()}
    except FileNotFoundError:
        raise UserError(f"{path} is missing: {folder} is not a Checkpoint") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); rebuild the checkpoint") from None
    if broken := next((name for name, weight in weights.items() if not weight.isfinite().all()), None):
        raise UserError(f"{path}: {broken} has a weight that is NaN or infinite; choose another checkpoint of the run")
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError:
        raise UserError(f"{path} does not match model.json; choose files of one model") from None
    return model.to(device).eval()


def load_checkpoint(folder: Path, device: str = "cpu") -> tuple[EncoderDecoder, SentencePieceProcessor]:
    """Loads a checkpoint's model and vocabulary. Raises UserError if one cannot be loaded or they do not match."""
    model, vocabulary = load_model(folder, device), load(Checkpoint(folder).vocabulary)
    if len(vocabulary) != model.config.vocabulary_size:
        raise UserError(
            f"{folder}: joint.model has {len(vocabulary)} pieces and the model {model.config.vocabulary_size}; "
            "choose a checkpoint whose files belong together"
        )
    return model, vocabulary


class Translator:
    """A model and its vocabulary, ready to translate. Raises UserError if the checkpoint cannot be loaded."""

    def __init__(self, checkpoint_folder: Path, settings: DecodingSettings, device: str = "cpu") -> None:
        self.settings, self.device = settings, device
        self._load(Path(checkpoint_folder))
        self._longest_tokens = min(LONGEST_TOKENS, self._max_positions)

    def _load(self, folder: Path) -> None:
        """Sets dtype, configuration, vocabulary and model for `search`."""
        self.dtype = dtype_of(self.settings.dtype, self.device)
        model, self._vocabulary = load_checkpoint(folder, self.device)
        self._decoder, self.config = make_decoder(model.to(self.dtype)), model.config
        self._batch_tokens = BATCH_TOKENS["cpu"]
        if self.device.startswith("cuda"):
            memory_bytes = torch.cuda.get_device_properties(self.device).total_memory * self.settings.gpu_share
            self._batch_tokens = batch_tokens_within(memory_bytes, self.config)

    @property
    def _max_positions(self) -> int:
        """Maximum length of a source and of an output, END_ID included, for which the model has positions."""
        return self.config.max_positions if self.config.positions == "learned" else sys.maxsize

    def with_settings(self, settings: DecodingSettings) -> Self:
        """Returns a translator with the same model, vocabulary and dtype and another search."""
        if settings == self.settings:
            return self
        other = copy(self)
        other.settings = settings
        return other

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Returns the best translation of each line, in order; empty for a blank line."""
        return [translation.text for translation in self.translations(lines)]

    def translations(self, lines: Sequence[str]) -> list[Translation]:
        """Like `translate`, with token counts and scores."""
        return [outputs[0] for outputs in self.n_best(lines, 1)]

    def n_best(self, lines: Sequence[str], n: int) -> list[list[Translation]]:
        """Returns the `n` best translations of each line, best first; a blank line has one, empty.

        Lines are `normalised` like training text. A line has fewer if the search finds fewer. If a line is translated
        in parts, its i-th best translation joins the parts' i-th best. A line's translations do not depend on other
        lines. Raises ValueError if `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"{n} translations per line were requested; n must be at least 1")
        lines = [normalised(line) for line in lines]
        parts: list[list[int]] = []
        line_of_part: list[int] = []
        for i, tokens in enumerate(encode_lines(self._vocabulary, lines)):
            if lines[i]:
                cut = self._cut(tokens)
                if len(cut) > 1:
                    beginning = lines[i][:40]
                    logger.warning(
                        "a line of %d tokens is translated in %d parts: %s...", len(tokens), len(cut), beginning
                    )
                parts += cut
                line_of_part += [i] * len(cut)
        best_of_parts: list[list[list[Hypothesis]]] = [[] for _ in lines]
        for i, hypotheses in zip(line_of_part, self.search(parts, n), strict=True):
            best_of_parts[i].append(hypotheses)
        return [
            [self._join(of_one_rank) for of_one_rank in zip(*by_part, strict=False)] or [Translation("", 0)]
            for by_part in best_of_parts
        ]

    def search(self, sources: Sequence[list[int]], n: int = 1) -> list[list[Hypothesis]]:
        """Returns the `n` best outputs of each source (token ids ending in END_ID); searches longest sources first."""
        settings, batch_tokens = self.settings, self.settings.batch_tokens or self._batch_tokens
        best: list[list[Hypothesis]] = [[] for _ in sources]
        for rows in batches([len(source) for source in sources], settings, batch_tokens):
            source_BS = pad_sequence([torch.tensor(sources[i]) for i in rows], batch_first=True, padding_value=PAD_ID)
            try:
                outputs = beam_search(
                    self._decoder,
                    source_BS.to(self.device),
                    **settings.model_dump(include={"beam_size", "length_penalty", "max_extra_tokens"}),
                    n_best=n,
                    constraint=self._constraint([sources[i] for i in rows]) if settings.well_formed else None,
                )
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                raise UserError(
                    f"memory ran out in a search with beam size {settings.beam_size} over {source_BS.numel()} tokens "
                    f"({error}); end other programs, or lower batch_tokens or beam_size"
                ) from error
            for i, hypotheses in zip(rows, outputs, strict=True):
                best[i] = hypotheses
        return best

    def _constraint(self, sources: Sequence[list[int]]) -> WellFormed:
        """Returns the constraint to trees over the words of `sources`, each of which begins with a space."""
        begins = self._begins_word
        return WellFormed(self._tree_tokens, [sum(begins[token] for token in source) for source in sources])

    @cached_property
    def _tree_tokens(self) -> TreeTokens:
        return tree_tokens(self._vocabulary)

    @cached_property
    def _begins_word(self) -> list[bool]:
        return [self._vocabulary.id_to_piece(i).startswith(SPACE_SIGN) for i in range(len(self._vocabulary))]

    def _join(self, parts: Sequence[Hypothesis]) -> Translation:
        """Joins the outputs of a line's parts into one translation, by spaces if they have any."""
        texts = decode_ids(self._vocabulary, [part.tokens for part in parts])
        return Translation(
            (" " if any(" " in text for text in texts) else "").join(texts),
            sum(len(part.tokens) + 1 for part in parts),
            sum(part.score for part in parts),
            sum(part.log_probability for part in parts),
        )

    def _cut(self, tokens: list[int]) -> list[list[int]]:
        """Cuts a line into parts of at most the maximum length, each ending in END_ID, before a word if possible.

        For trees, a part without the beginning of a word is left out, since a tree needs a word.
        """
        # A tree has two symbols more than words, and its output is limited by learned positions like its input.
        tokens, limit = tokens[:-1], self._longest_tokens - (3 if self.settings.well_formed else 1)
        parts = []
        while len(tokens) > limit:
            end = next((i for i in range(limit, limit // 2, -1) if self._begins_word[tokens[i]]), limit)
            parts.append([*tokens[:end], END_ID])
            tokens = tokens[end:]
        parts.append([*tokens, END_ID])
        if self.settings.well_formed:
            return [part for part in parts if any(self._begins_word[token] for token in part)]
        return parts


def batch_tokens_within(memory_bytes: float, config: TransformerConfig) -> int:
    """Returns how many source tokens a GPU decodes at once in this much memory, by default: at least one sentence's.

    Estimates weights, keys and values, logits and CUDA itself, all in float32.
    """
    weights = 3 * count_parameters(config) + 2 * SEARCH_ROWS["cuda"] * config.vocabulary_size
    keys_values = 2 * config.n_layers * config.n_heads * (config.d_k + config.d_v)  # caches grow by doubling
    room_bytes = GPU_MEMORY_SHARE * memory_bytes - CUDA_CONTEXT_BYTES - FLOAT32_BYTES * weights
    tokens = room_bytes / (FLOAT32_BYTES * keys_values * (1 + DECODED_PER_SOURCE_TOKEN))
    return max(LONGEST_TOKENS, min(BATCH_TOKENS["cuda"], int(tokens)))


def batches(lengths: Sequence[int], settings: DecodingSettings, batch_tokens: int) -> Iterator[list[int]]:
    """Yields row numbers, longest rows first, in batches of at most `batch_tokens` source tokens, padding included.

    With hypotheses of maximum length, a batch would decode at most DECODED_PER_SOURCE_TOKEN times `batch_tokens`
    tokens. A row that exceeds both limits is a batch of its own.
    """
    rows = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    first = 0
    while first < len(rows):
        longest = lengths[rows[first]]
        decoded = settings.beam_size * (longest + settings.max_extra_tokens)
        n_rows = min(batch_tokens // longest, DECODED_PER_SOURCE_TOKEN * batch_tokens // decoded)
        yield rows[first : first + max(1, n_rows)]
        first += max(1, n_rows)
