"""Benchmark of translation: our search, CTranslate2 and MarianMT's `generate` with the same model and sentences.

    python -m workflows.benchmarks.decoding model --src test.en      # the same as `aiayn bench decode`
    python -m workflows.benchmarks.decoding model --src test.en.gz --ref test.de.gz --lang de --json

Each contender (`decoding_contenders`) runs in its own processes and waits while another translates. All use the same
cores, either as one worker with all threads or as single-threaded workers that split the sentences; a warm-up on a
sample of the sentences picks the faster layout and, for the peers, the fastest batch size. The contenders are then
timed in interleaved rounds: ours translates all sentences, then the next contender does, and so on, so that a slow
minute of the machine affects all of them and shows in the spread over the rounds. The clock covers text to text,
sentencepiece included, but not loading the model. A ratio is the quotient of two medians over the rounds.

Ours computes in the number type that suits the machine and, where the processor has int8, in that too. Every contender
runs as its users would run it. All are given the same value of the length penalty, but the peers
define the penalty differently, so BLEU scores are printed beside the rates. At length penalty 0, where all of them
search for the same output, the outputs are compared token by token.

The benchmark needs neither Ray nor MLflow. Peers take part if they are installed: pip install -e '.[bench]'.
"""

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from model.config import TransformerConfig
from pipeline.errors import UserError
from pipeline.settings import DecodingSettings, Device
from pipeline.store.artifacts import Checkpoint
from pipeline.text.lines import read_lines, read_pairs
from workflows.benchmarks.decoding_contenders import (
    CTranslate2,
    DecodingContender,
    DecodingWorkload,
    MarianGenerate,
    OurTranslator,
    WorkerLayout,
)
from workflows.benchmarks.decoding_rates import (
    CTRANSLATE2,
    MARIAN,
    OURS,
    DecodingRates,
    DecodingRound,
    figures,
    print_table,
)
from workflows.benchmarks.load import sentence
from workflows.benchmarks.processes import ContenderProcess, RunningContender
from workflows.benchmarks.rounds import find_device, is_installed, with_status_line
from workflows.console.command import console, run_app
from workflows.console.options import one_of
from workflows.profiles import checked
from workflows.runs.names import named_folder

DEFAULTS = DecodingSettings()
CONTENDERS: dict[str, type[DecodingContender]] = {OURS: OurTranslator, CTRANSLATE2: CTranslate2, MARIAN: MarianGenerate}
PEERS = {"ctranslate2": CTRANSLATE2, "transformers": MARIAN}
"""The peers, keyed by the package each needs."""
CHOICE_SENTENCES = 500
"""Size of the evenly spaced sample on which the fastest layout and batch size are chosen."""
CHOICE_TRIALS = 2
"""Trials of each candidate. The faster one counts, so that one slow moment of the machine does not decide."""
WARM_UP_SENTENCES = 32
"""Sentences that new processes translate before the clock starts."""


@dataclass(frozen=True)
class BenchmarkText:
    """The sentences to translate, none of them blank."""

    sources: list[str]
    references: list[str]
    """One per source, or an empty list."""
    language: str = ""
    """Language of the references."""

    def score(self, translations: list[str]) -> dict[str, Any]:
        """Returns both BLEU scores, or an empty dict if there are no references."""
        if not self.references:
            return {}
        from pipeline.evaluation.scoring import score_texts

        scores = score_texts(translations, self.references, self.language)
        return {"sacrebleu": scores.sacrebleu, "paper_bleu": scores.paper_bleu}


@dataclass(frozen=True)
class DecodingOptions:
    """How the benchmark is run."""

    settings: DecodingSettings
    device: str = "auto"
    threads: int = 0
    """CPU threads; 0 means all cores."""
    rounds: int = 3


def read_text(src: Path, ref: Path | None, language: str | None, sentences: int | None) -> BenchmarkText:
    """Reads the first `sentences` lines whose source is not blank.

    Raises UserError if a file cannot be read, the two files differ in length, or no sentence is left.
    """
    if language and not ref:
        raise UserError("--lang needs --ref, the file of references")
    if ref and not language:
        raise UserError("--ref needs --lang, the language of the references, e.g. --lang de")
    pairs = list(read_pairs(src, ref)) if ref else [(line, "") for line in read_lines(src)]
    pairs = [pair for pair in pairs if pair[0].strip()][:sentences]
    if not pairs:
        raise UserError(f"{src} holds no sentence; name a file with one sentence per line")
    return BenchmarkText(
        [source for source, _ in pairs], [target for _, target in pairs] if ref else [], language or ""
    )


def measure(
    model: Path, text: BenchmarkText, options: DecodingOptions, show: Callable[[str], object] = str
) -> dict[str, Any]:
    """Runs the benchmark and returns what --json prints. `show` is called with a line on what is running now.

    Raises UserError if the checkpoint is unusable, a sentence is too long, an option does not suit the machine, or our
    own search fails. A peer that fails is reported as failed, with null for its ratio.
    """
    from model.int8 import is_available
    from pipeline.hardware import device_name, dtype_name, dtype_of

    model = named_folder("average", model, "model.safetensors")
    _check_lengths(model, text, options.settings)
    device, threads = find_device(options.device), options.threads or os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder, ExitStack() as stack:
        workload = DecodingWorkload(model, Path(folder) / "exported", options.settings, device)
        layouts = (
            [WorkerLayout(1, threads)]
            if device == "gpu" or threads == 1
            else [WorkerLayout(1, threads), WorkerLayout(threads, 1)]
        )
        sample = _evenly(text.sources, CHOICE_SENTENCES)

        def start(name: str, dtype: str) -> RunningContender[DecodingRates]:
            show(f"warming up {name} {dtype}")
            rates = DecodingRates(name, dtype, layouts[0])
            _choose_layout(rates, workload, layouts, sample)
            running = stack.enter_context(_start(rates, workload))
            _translate(running, _evenly(sample, WARM_UP_SENTENCES))
            return running

        auto = dtype_name(dtype_of("auto", workload.device_name))
        ours = start(OURS, auto)
        in_int8 = [start(OURS, "int8")] if device == "cpu" and is_available() else []
        dtypes = {
            CTRANSLATE2: ["float32", "bfloat16", *(["float16"] if device == "gpu" else []), "int8"],
            MARIAN: ["float32", *([auto] if auto != "float32" else [])],
        }
        installed = [name for package, name in PEERS.items() if is_installed(package)]
        peers = in_int8 + [start(name, dtype) for name in installed for dtype in dtypes[name]]
        for number in range(options.rounds):
            for running in (ours, *peers):
                show(f"round {number + 1} of {options.rounds}: {running.rates.name} {running.rates.dtype}")
                if done := _translate(running, text.sources):
                    running.rates.rounds.append(done)
        for running in (ours, *peers):
            peaks = running.call_each("peak_memory_gb", [()] * len(running.processes))
            running.rates.peak_memory_gb = sum(peaks or [])
        result = figures([running.rates for running in (ours, *peers)], text.score)
        show("comparing outputs")
        described = {
            "device": device,
            "device_name": device_name(workload.device_name),
            "dtype": ours.rates.dtype,
            "threads": threads,
            "sentences": len(text.sources),
            "beam_size": options.settings.beam_size,
            "length_penalty": options.settings.length_penalty,
            "rounds": options.rounds,
        }
        return described | result | _agreement(ours, peers, text.sources)


def _check_lengths(model: Path, text: BenchmarkText, settings: DecodingSettings) -> None:
    """Raises UserError if a sentence, or its longest possible output, exceeds the positions every contender has."""
    from pipeline.text.vocabulary import load

    fields = Checkpoint(model).read_json("model.json")
    limit = fields.get("max_positions", TransformerConfig.max_positions) - settings.max_extra_tokens
    for source, ids in zip(text.sources, load(model / "joint.model").encode(text.sources), strict=True):
        if len(ids) >= limit:
            raise UserError(
                f"a sentence of {len(ids)} tokens is too long to compare (the limit is {limit - 1}); leave it out: "
                f"{source.strip()[:40]}..."
            )


def _start(rates: DecodingRates, workload: DecodingWorkload) -> RunningContender[DecodingRates]:
    """Starts a contender's processes in the layout noted in `rates`; starts none if it has failed."""
    make = CONTENDERS[rates.name]
    n_processes = 0 if rates.failed else 1 if make.SHARES_WORK else rates.layout.workers
    processes = [ContenderProcess(make, workload, rates.layout, rates.dtype) for _ in range(n_processes)]
    return RunningContender(rates, processes, advice="lower --beam-size or --threads" if rates.name == OURS else "")


def _choose_layout(
    rates: DecodingRates, workload: DecodingWorkload, layouts: Sequence[WorkerLayout], lines: Sequence[str]
) -> None:
    """Sets the layout and batch size of `rates` to those that translate `lines` fastest."""
    batch_sizes = CONTENDERS[rates.name].BATCH_SIZES
    best_s, best = math.inf, (layouts[0], batch_sizes[0])
    for layout in layouts if len(layouts) * len(batch_sizes) > 1 else ():
        rates.layout = layout
        with _start(rates, workload) as running:
            _translate(running, _evenly(lines, WARM_UP_SENTENCES))
            for batch_size in batch_sizes * CHOICE_TRIALS:
                rates.batch_size = batch_size
                done = _translate(running, lines)
                if done and done.seconds < best_s:
                    best_s, best = done.seconds, (layout, batch_size)
    rates.layout, rates.batch_size = best


def _evenly(lines: Sequence[str], at_most: int) -> Sequence[str]:
    """Returns at most `at_most` lines, evenly spaced."""
    return lines[:: math.ceil(len(lines) / at_most)]


def _translate(running: RunningContender[DecodingRates], lines: Sequence[str]) -> DecodingRound | None:
    """Times the translation of all lines; returns None for a peer that has failed."""
    started_s = time.perf_counter()
    outputs = _map_lines(running, "translate", lines)
    return None if outputs is None else DecodingRound(outputs, time.perf_counter() - started_s)


def _map_lines(running: RunningContender[DecodingRates], method: str, lines: Sequence[str]) -> list[Any] | None:
    """Calls `method` on all lines, dealt to the processes longest first; the results are in the order of the lines."""
    order, n = sorted(range(len(lines)), key=lambda i: -len(lines[i])), len(running.processes)
    shares = [order[first::n] for first in range(n)]
    arguments = [([lines[i] for i in share], running.rates.batch_size) for share in shares]
    parts = running.call_each(method, arguments)
    if parts is None:
        return None
    found = {i: made for share, part in zip(shares, parts, strict=True) for i, made in zip(share, part, strict=True)}
    return [found[i] for i in range(len(lines))]


def _agreement(
    ours: RunningContender[DecodingRates], peers: Sequence[RunningContender[DecodingRates]], lines: Sequence[str]
) -> dict[str, Any]:
    """Compares outputs at length penalty 0: the share with equal tokens, the largest log-probability difference."""
    result: dict[str, Any] = {"agreement_ctranslate2": None, "agreement_transformers": None}
    result["log_probability_difference"] = None
    exact = {peer.rates.name: peer for peer in peers if peer.rates.dtype == "float32" and not peer.rates.failed}
    if not exact:
        return result
    hypotheses = _map_lines(ours, "hypotheses", lines) or []
    outputs = [hypothesis.tokens for hypothesis in hypotheses]
    for package, name in PEERS.items():
        if name in exact and (found := _map_lines(exact[name], "unpenalized", lines)):
            result[f"agreement_{package}"] = sum(map(list.__eq__, outputs, found)) / len(lines)
    if CTRANSLATE2 in exact and (log_ps := exact[CTRANSLATE2].call("log_probabilities", lines, outputs)):
        differences = (abs(mine.log_probability - log_p) for mine, log_p in zip(hypotheses, log_ps, strict=True))
        result["log_probability_difference"] = max(differences)
    return result


def decode(
    model: Annotated[Path, typer.Argument(help="Model folder made by `aiayn average`.")],
    src: Annotated[Path, typer.Option(help="Sentences to translate, one per line; may be gzip.")],
    ref: Annotated[Path | None, typer.Option(help="References, one per line, to score the translations with.")] = None,
    lang: Annotated[str | None, typer.Option(help="Language of the references, e.g. de.")] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses kept open; 1 is greedy.")] = DEFAULTS.beam_size,
    length_penalty: Annotated[
        float, typer.Option(min=0, help="α of ((5 + |y|) / 6)^α; the peers use |y|^α.")
    ] = DEFAULTS.length_penalty,
    sentences: Annotated[
        int | None, typer.Option(min=1, help="Translate only the first N sentences.  [default: all]")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = DecodingOptions.device,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: all cores.")] = DecodingOptions.threads,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds per translator.")] = DecodingOptions.rounds,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare translation with CTranslate2 and MarianMT's generate, same weights, in sentences per second."""
    one_of("--device", device, get_args(Device))
    text = read_text(src, ref, lang, sentences)
    settings = checked(DecodingSettings, beam_size=beam_size, length_penalty=length_penalty)
    options = DecodingOptions(settings, device, threads, rounds)
    result = with_status_line(partial(measure, model, text, options))
    if as_json:
        typer.echo(json.dumps(result))
        return
    print_table(result)
    console.print(sentence(result["load"]), highlight=False, soft_wrap=True)
    for package, name in PEERS.items():
        if not is_installed(package):
            console.print(f"{name} did not take part: pip install -e '.[bench]'", markup=False, highlight=False)


def main() -> None:
    """Entry point of `python -m workflows.benchmarks.decoding`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(decode)
    run_app(app, "python -m workflows.benchmarks.decoding")


if __name__ == "__main__":
    main()
