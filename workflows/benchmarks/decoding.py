"""Benchmark of translation: ours, CTranslate2 and MarianMT's `generate`, one trained model, the same sentences.

    python -m workflows.benchmarks.decoding model --src test.en      # the same as `aiayn bench decode`
    python -m workflows.benchmarks.decoding model --src test.en.gz --ref test.de.gz --lang de --json

Each contender (`decoding_contenders`) has processes of its own and waits while another translates. All
have the same cores, as one worker of all threads or as workers of one thread each that share out the sentences; a
warm-up on some of the sentences finds the faster of the two and, for the peers, the fastest batch size. Then come
rounds: all sentences by ours, the same by the next contender, and so on; so a slow minute of the machine is shared
out, and the spread over the rounds shows it. Timed is text to text, sentencepiece included; a ratio is the quotient of
two medians over the rounds. Loading the model is not timed.

All are timed as their users run them, with the same number for the length penalty, which is not the same penalty: the
scores stand beside the rates for that. At length penalty 0, where all search for the same, outputs are compared token
by token.

Needs neither Ray nor MLflow. The peers take part where they are installed: pip install -e '.[bench]'.
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
from typing import Annotated, Any

import typer

from model.config import TransformerConfig
from pipeline.errors import UserError
from pipeline.settings import DecodingSettings
from pipeline.store.artifacts import Checkpoint
from pipeline.text.lines import read_lines, read_pairs
from workflows.benchmarks.decoding_contenders import Contender, CTranslate2, Layout, MarianGenerate, Ours, Workload
from workflows.benchmarks.decoding_rates import CTRANSLATE2, MARIAN, OURS, Rates, Round, figures, print_table
from workflows.benchmarks.processes import ContenderProcess, Running
from workflows.benchmarks.rounds import find_device, is_installed, one_of, watched
from workflows.console.command import console, require_output_of, run_app
from workflows.profiles import checked

CONTENDERS: dict[str, type[Contender]] = {OURS: Ours, CTRANSLATE2: CTranslate2, MARIAN: MarianGenerate}
PEERS = {"ctranslate2": CTRANSLATE2, "transformers": MARIAN}
"""By the packages they need."""
CHOICE_SENTENCES = 500
"""Taken evenly from all, to find the fastest layout and batch size."""
CHOICE_TIMES = 2
"""So often each is tried, and the faster counts: one slow moment of the machine must not decide on a layout."""
WARM_UP_SENTENCES = 32
"""Of those, translated by new processes before the clock runs."""


@dataclass(frozen=True)
class Text:
    """What is translated, no line of it blank."""

    sources: list[str]
    references: list[str]
    """As many, or none."""
    language: str = ""
    """Of the references."""

    def score(self, translations: list[str]) -> dict[str, Any]:
        """Both BLEU scores; nothing where there are no references."""
        if not self.references:
            return {}
        from pipeline.evaluation.scoring import score_texts

        scores = score_texts(translations, self.references, self.language)
        return {"sacrebleu": scores.sacrebleu, "paper_bleu": scores.paper_bleu}


@dataclass(frozen=True)
class Options:
    """How it is measured."""

    settings: DecodingSettings
    device: str = "auto"
    threads: int = 0
    """0: all cores."""
    rounds: int = 3


def read_text(src: Path, ref: Path | None, language: str | None, sentences: int | None) -> Text:
    """The first `sentences` lines whose source is not blank.

    Raises UserError where a file cannot be read, the two have not as many lines, or nothing is left.
    """
    if language and not ref:
        raise UserError("--lang needs --ref, the file of references")
    if ref and not language:
        raise UserError("--ref needs --lang, the language of the references, e.g. --lang de")
    pairs = list(read_pairs(src, ref)) if ref else [(line, "") for line in read_lines(src)]
    pairs = [pair for pair in pairs if pair[0].strip()][:sentences]
    if not pairs:
        raise UserError(f"{src} holds no sentence; name a file with one sentence a line")
    return Text([source for source, _ in pairs], [target for _, target in pairs] if ref else [], language or "")


def measure(model: Path, text: Text, options: Options, show: Callable[[str], object] = str) -> dict[str, Any]:
    """Runs the benchmark; gives what --json prints. `show` takes a line on what is running now.

    Raises UserError where the checkpoint is no good, a sentence is too long, an option does not fit the machine, or
    our own search fails. A peer that fails is reported as such, with null for its ratio.
    """
    from pipeline.hardware import device_name, dtype_of

    model = require_output_of("average", model, "model.safetensors")
    _check_lengths(model, text, options.settings)
    device, threads = find_device(options.device), options.threads or os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder, ExitStack() as stack:
        workload = Workload(model, Path(folder) / "exported", options.settings, device)
        layouts = [Layout(1, threads)] if device == "gpu" or threads == 1 else [Layout(1, threads), Layout(threads, 1)]
        sample = _evenly(text.sources, CHOICE_SENTENCES)

        def enter(name: str, dtype: str) -> Running[Rates]:
            show(f"warming up {name} {dtype}")
            rates = Rates(name, dtype, layouts[0])
            _choose(rates, workload, layouts, sample)
            running = stack.enter_context(_start(rates, workload))
            _translate(running, _evenly(sample, WARM_UP_SENTENCES))
            return running

        native = str(dtype_of("auto", workload.device_name)).removeprefix("torch.")
        ours = enter(OURS, native)
        dtypes = {
            CTRANSLATE2: ["float32", "bfloat16", *(["float16"] if device == "gpu" else []), "int8"],
            MARIAN: ["float32", *([native] if native != "float32" else [])],
        }
        taking_part = [name for package, name in PEERS.items() if is_installed(package)]
        peers = [enter(name, dtype) for name in taking_part for dtype in dtypes[name]]
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


def _check_lengths(model: Path, text: Text, settings: DecodingSettings) -> None:
    """Raises UserError where a sentence and what may come of it exceed the positions that every contender has."""
    from pipeline.text.vocabulary import load

    fields = Checkpoint(model).read_json("model.json")
    limit = fields.get("max_positions", TransformerConfig.max_positions) - settings.max_extra_tokens
    for source, ids in zip(text.sources, load(model / "joint.model").encode(text.sources), strict=True):
        if len(ids) >= limit:
            raise UserError(
                f"a sentence of {len(ids)} tokens is too long to compare, {limit - 1} are the most; leave it out: "
                f"{source.strip()[:40]}..."
            )


def _start(rates: Rates, workload: Workload) -> Running[Rates]:
    """The processes of a contender in the layout noted in `rates`; none where it has failed."""
    make = CONTENDERS[rates.name]
    n_processes = 0 if rates.failed else 1 if make.SHARES_WORK else rates.layout.workers
    processes = [ContenderProcess(make, workload, rates.layout, rates.dtype) for _ in range(n_processes)]
    return Running(rates, processes, mend="lower --beam-size or --threads" if rates.name == OURS else "")


def _choose(rates: Rates, workload: Workload, layouts: Sequence[Layout], lines: Sequence[str]) -> None:
    """Notes in `rates` the layout and the batch size that translate `lines` fastest."""
    batch_sizes = CONTENDERS[rates.name].BATCH_SIZES
    best_s, best = math.inf, (layouts[0], batch_sizes[0])
    for layout in layouts if len(layouts) * len(batch_sizes) > 1 else ():
        rates.layout = layout
        with _start(rates, workload) as running:
            _translate(running, _evenly(lines, WARM_UP_SENTENCES))
            for batch_size in batch_sizes * CHOICE_TIMES:
                rates.batch_size = batch_size
                done = _translate(running, lines)
                if done and done.seconds < best_s:
                    best_s, best = done.seconds, (layout, batch_size)
    rates.layout, rates.batch_size = best


def _evenly(lines: Sequence[str], at_most: int) -> Sequence[str]:
    """At most so many, from all over."""
    return lines[:: math.ceil(len(lines) / at_most)]


def _translate(running: Running[Rates], lines: Sequence[str]) -> Round | None:
    """All lines, with the clock running; None of a peer that has failed."""
    started_s = time.perf_counter()
    outputs = _deal(running, "translate", lines)
    return None if outputs is None else Round(outputs, time.perf_counter() - started_s)


def _deal(running: Running[Rates], method: str, lines: Sequence[str]) -> list[Any] | None:
    """What `method` makes of each line, in their order: dealt out to the processes in turn, the longest first."""
    order, n = sorted(range(len(lines)), key=lambda i: -len(lines[i])), len(running.processes)
    hands = [order[first::n] for first in range(n)]
    dealt = [([lines[i] for i in hand], running.rates.batch_size) for hand in hands]
    parts = running.call_each(method, dealt)
    if parts is None:
        return None
    found = {i: result for hand, part in zip(hands, parts, strict=True) for i, result in zip(hand, part, strict=True)}
    return [found[i] for i in range(len(lines))]


def _agreement(ours: Running[Rates], peers: Sequence[Running[Rates]], lines: Sequence[str]) -> dict[str, Any]:
    """Share of the lines whose tokens are the same at length penalty 0, and how far log-probabilities are apart."""
    result: dict[str, Any] = {"agreement_ctranslate2": None, "agreement_transformers": None}
    result["log_probability_difference"] = None
    exact = {peer.rates.name: peer for peer in peers if peer.rates.dtype == "float32" and not peer.rates.failed}
    if not exact:
        return result
    hypotheses = _deal(ours, "hypotheses", lines) or []
    outputs = [hypothesis.tokens for hypothesis in hypotheses]
    for package, name in PEERS.items():
        if name in exact and (found := _deal(exact[name], "unpenalized", lines)):
            result[f"agreement_{package}"] = sum(map(list.__eq__, outputs, found)) / len(lines)
    if CTRANSLATE2 in exact and (log_ps := exact[CTRANSLATE2].call("log_probabilities", lines, outputs)):
        differences = (abs(mine.log_probability - log_p) for mine, log_p in zip(hypotheses, log_ps, strict=True))
        result["log_probability_difference"] = max(differences)
    return result


def decode(
    model: Annotated[Path, typer.Argument(help="Folder of a model, as `aiayn average` makes it.")],
    src: Annotated[Path, typer.Option(help="Sentences to translate, one a line; may be gzip.")],
    ref: Annotated[Path | None, typer.Option(help="References, one a line: scores all translations.")] = None,
    lang: Annotated[str | None, typer.Option(help="Language of the references, e.g. de.")] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses kept open; 1 is greedy.")] = 4,
    length_penalty: Annotated[float, typer.Option(min=0, help="α of ((5 + |y|) / 6)^α; the peers have |y|^α.")] = 0.6,
    sentences: Annotated[int | None, typer.Option(min=1, help="Only so many, the first.  [default: all]")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: all cores.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that each translator is timed in.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Translation beside CTranslate2 and MarianMT's generate, in sentences a second, with the same weights."""
    one_of("--device", device, ("auto", "cpu", "gpu"))
    text = read_text(src, ref, lang, sentences)
    settings = checked(DecodingSettings, beam_size=beam_size, length_penalty=length_penalty)
    options = Options(settings, device, threads, rounds)
    result = watched(partial(measure, model, text, options))
    if as_json:
        typer.echo(json.dumps(result))
        return
    print_table(result)
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
