"""Measures what pruning the tree of hypotheses is worth: searches with and without it, in interleaved rounds.

    python tests/benchmarks/pruned_trees.py                              # parsing: 40 words, beam 21, input + 300
    python tests/benchmarks/pruned_trees.py --d-model 1024 --extra 60
    python tests/benchmarks/pruned_trees.py --model model --src test.en --sentences 500          # translation: beam 4

Each search has a process of its own. Random weights write random trees of the given length, which the constraint on
brackets ends; a trained model (made by `aiayn average`) translates a file. Rates are per second of processor time.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from model import incremental
from model.config import END_ID, TransformerConfig
from model.incremental import DecoderCache, IncrementalDecoder
from model.search import Hypothesis, beam_search
from model.transformer import Transformer
from pipeline.evaluation.translation import Translator
from pipeline.memory import peak_memory_bytes
from pipeline.parsing.constraint import TreeTokens, WellFormed
from pipeline.settings import DecodingSettings
from pipeline.text.lines import read_lines
from pipeline.text.segmentation import encode_lines
from pipeline.text.vocabulary import load
from workflows.benchmarks.load import Clocks, load_since, sentence
from workflows.benchmarks.processes import ContenderProcess

N_LABELS = 26
"""Those of the Penn Treebank's constituents."""


class Round(NamedTuple):
    """One search of all sentences."""

    processor_s: float
    outputs: list[Hypothesis]
    held: float
    """Mean tokens held for a sentence, over the positions decoded."""


class Search:
    """The search of one process, whose trees are pruned or not."""

    def __init__(self, options: argparse.Namespace, pruned: bool) -> None:
        self.options = options
        torch.set_num_threads(1)
        incremental.FIRST_PRUNED_TOKENS = options.first if pruned else sys.maxsize
        incremental.PRUNING_GROWTH = options.growth
        if options.model:
            settings = DecodingSettings(beam_size=options.beam or 4, precision=options.precision)
            self.translator = Translator(options.model, settings)
            lines = list(read_lines(options.src))[: options.sentences]
            vocabulary = load(options.model / "joint.model")
            self.sources = encode_lines(vocabulary, [line for line in lines if line.strip()])
        else:
            torch.manual_seed(0)
            d_model, n_heads = options.d_model, 8
            d_k = d_model // n_heads
            config = TransformerConfig(options.vocabulary_size, 4, d_model, 4 * d_model, n_heads, d_k, d_k, dropout=0)
            model = Transformer(config).eval().to(getattr(torch, options.precision))
            self.decoder = IncrementalDecoder(model)

    def round(self, sentences: int) -> Round:
        """Searches the first `sentences` once and counts the tokens held at each position."""
        held: list[int] = []
        open_position = DecoderCache.open_position

        def counted(cache: DecoderCache, width: int) -> None:
            open_position(cache, width)
            held.append(cache.bias_BWM.shape[2])

        DecoderCache.open_position = counted  # type: ignore[method-assign]
        began_s = time.process_time()
        outputs = self._translate(sentences) if self.options.model else self._parse(sentences)
        processor_s = time.process_time() - began_s
        DecoderCache.open_position = open_position  # type: ignore[method-assign]
        return Round(processor_s, outputs, sum(held) / len(held))

    def _translate(self, sentences: int) -> list[Hypothesis]:
        return [found[0] for found in self.translator.search(self.sources[:sentences])]

    def _parse(self, sentences: int) -> list[Hypothesis]:
        options, first = self.options, END_ID + 1
        opening, closing = range(first, first + N_LABELS), range(first + N_LABELS, first + 2 * N_LABELS)
        tokens = TreeTokens(options.vocabulary_size, opening, closing, words=[first + 2 * N_LABELS])
        generator = torch.Generator().manual_seed(1)
        shape = sentences, options.words + 1
        source_BS = torch.randint(tokens.word, options.vocabulary_size, shape, generator=generator)
        source_BS[:, -1] = END_ID
        found = beam_search(
            self.decoder,
            source_BS,
            beam_size=options.beam or 21,
            length_penalty=0.3,
            max_extra_tokens=options.extra,
            constraint=WellFormed(tokens, [options.words] * sentences),
        )
        return [best for best, *_ in found]

    def peak_memory_gb(self) -> float:
        """Returns the peak so far."""
        return peak_memory_bytes() / 1e9


def main() -> None:
    """Reads the options, times both searches in turn and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--vocabulary-size", type=int, default=16_000)
    parser.add_argument("--sentences", type=int, default=9)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--extra", type=int, default=300, help="tokens that an output may be longer than the input")
    parser.add_argument("--beam", type=int, help="default: 21, or 4 with --model")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--src", type=Path)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--first", type=int, default=incremental.FIRST_PRUNED_TOKENS)
    parser.add_argument("--growth", type=float, default=incremental.PRUNING_GROWTH)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rounds: dict[str, list[Round]] = {"kept": [], "pruned": []}
    began, peaks_gb = Clocks.read(), []
    processes = [ContenderProcess(Search, options, name == "pruned") for name in rounds]
    try:
        for process in processes:
            process.call("round", 1)
        for _ in range(options.rounds):
            for process, done in zip(processes, rounds.values(), strict=True):
                done.append(process.call("round", options.sentences))
        peaks_gb = [process.call("peak_memory_gb") for process in processes]
    finally:
        for process in processes:
            process.end()
    for (name, done), peak_gb in zip(rounds.items(), peaks_gb, strict=True):
        outputs = done[0].outputs
        rates = [len(outputs) / one.processor_s for one in done]
        n_tokens = sum(len(output.tokens) + 1 for output in outputs) / len(outputs)
        print(
            f"{name:>6}: {median(rates):7.3f} sentences/s ({min(rates):.3f} to {max(rates):.3f}), "
            f"{n_tokens:.0f} tokens a sentence, {done[0].held:.0f} tokens held, peak {peak_gb:.2f} GB"
        )
    ratios = [kept.processor_s / pruned.processor_s for kept, pruned in zip(*rounds.values(), strict=True)]
    pairs = list(zip(*(done[0].outputs for done in rounds.values()), strict=True))
    same = sum(kept.tokens == pruned.tokens for kept, pruned in pairs) / len(pairs)
    difference = max(abs(kept.score - pruned.score) for kept, pruned in pairs)
    print(
        f"ratio {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); {same:.1%} of the outputs are the same"
    )
    print(f"scores differ by at most {difference:.2g}; {sentence(load_since(began))}")


if __name__ == "__main__":
    main()
