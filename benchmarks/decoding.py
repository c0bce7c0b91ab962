"""Benchmark of translation: our search and CTranslate2's, with the same model and sentences.

python -m benchmarks.decoding MODEL --src test.en
python -m benchmarks.decoding MODEL --src test.en.gz --ref test.de.gz --lang de --json

Each contender (`translators`) splits the sentences over single-threaded processes, one per core; on a GPU it has one
process. After a warm-up, they take turns in rounds, from text to text. A ratio is our rate in the machine's best dtype
over a contender's. On a busy machine, `sentences_processor_s` (per second of CPU time) varies less. CTranslate2's
length penalty and rule of ending differ, hence BLEU and the number of translations equal to ours in float32.

Ray and MLflow are not needed. CTranslate2 is timed if installed: pip install -e '.[bench]'.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.contenders import OURS, Contender, is_installed, print_result, processes, ratio
from benchmarks.translators import CTranslate2, Ours
from pipeline.artifacts import Checkpoint
from pipeline.context import Context
from pipeline.environment import usable_cpus
from pipeline.errors import UserError
from pipeline.settings import DecodingSettings
from pipeline.text.lines import read_lines, read_pairs
from workflows.cli.console import App, help_text, run_app
from workflows.names import named_folder

CTRANSLATE2 = "CTranslate2"
SAMPLE_SENTENCES = 300


def measure(
    model: Path, pairs: Sequence[tuple[str, str]], language: str, settings: DecodingSettings, rounds: int
) -> dict[str, Any]:
    """Runs the benchmark on sources and references ("" if `language` is). Returns the output of --json.

    Raises UserError if our search fails. A failed peer is reported, with null for its ratio.
    """
    import torch

    from pipeline.hardware import device_name, dtype_name, dtype_of

    lines, references = [source for source, _ in pairs], [target for _, target in pairs] if language else []
    sample = lines[:: -(-len(lines) // SAMPLE_SENTENCES)]
    on_gpu, threads = torch.cuda.is_available(), usable_cpus()
    device = "cuda" if on_gpu else "cpu"
    types = list(dict.fromkeys([dtype_name(dtype_of("auto", device)), "float32"]))
    wanted = [(OURS, Ours, model, dtype) for dtype in types]
    with tempfile.TemporaryDirectory(prefix="aiayn-bench-") as folder, processes():
        if is_installed("ctranslate2"):
            from pipeline.export.ctranslate2 import export

            export(Context(Path(folder)), Checkpoint(model))
            dtypes = (*types, *["float16"] * on_gpu, "int8")
            wanted += [(CTRANSLATE2, CTranslate2, Path(folder), dtype) for dtype in dtypes]
        contenders = []
        for name, kind, path, dtype in wanted:
            changed, workers = settings.model_copy(update={"dtype": dtype}), 1 if on_gpu else threads
            contenders.append(Contender(name, dtype, kind, path, changed, device, workers=workers))
            translate(contenders[-1], sample)
        for _ in range(rounds):
            for contender in contenders:
                contender.rounds += filter(None, [translate(contender, lines)])
        exact, ours = contenders[len(types) - 1].rounds[-1]["texts"], contenders[0].rates("sentences")
        summaries = [
            summary_of(contender, exact, references, language) | ratio("ratio", ours, contender.rates("sentences"))
            for contender in contenders
        ]
    return {
        "device_name": device_name(device),
        "threads": threads,
        "sentences": len(lines),
        **settings.model_dump(include={"beam_size", "length_penalty"}),
        "rounds": rounds,
        "contenders": summaries,
    }


def translate(contender: Contender, lines: Sequence[str]) -> dict[str, Any] | None:
    """Times the translation of lines, dealt to the processes longest first. Returns None for a failed peer."""
    order, n = sorted(range(len(lines)), key=lambda i: -len(lines[i])), contender.workers
    shares = [order[first::n] for first in range(n)]
    started_s = time.perf_counter()
    results = contender.call_each("timed", [([lines[i] for i in share],) for share in shares])
    seconds = time.perf_counter() - started_s
    if results is None:
        return None
    parts, processor_s = zip(*results, strict=True)
    by_line = {i: done for share, part in zip(shares, parts, strict=True) for i, done in zip(share, part, strict=True)}
    texts, counts = zip(*(by_line[i] for i in range(len(lines))), strict=True)
    done = {"sentences": len(lines), "tokens": sum(counts), "seconds": seconds}
    return done | {"processor_s": sum(processor_s), "texts": list(texts)}


def summary_of(contender: Contender, exact: Sequence[str], references: Sequence[str], language: str) -> dict[str, Any]:
    """Returns a contender's part of --json: rates, memory, and a comparison of its last round's translations."""
    summary = contender.summary("sentences", "sentences_s")
    if contender.failed:
        return summary
    peaks = contender.call_each("peak_memory_gb", [()] * contender.workers) or []
    summary["sentences_processor_s"] = median(done["sentences"] / done["processor_s"] for done in contender.rounds)
    summary |= {"tokens_s": median(contender.rates("tokens")), "peak_memory_gb": sum(peaks)}
    texts = contender.rounds[-1]["texts"]
    summary["equal_outputs"] = sum(text == other for text, other in zip(texts, exact, strict=True))
    if references:
        from pipeline.evaluation.scoring import score_texts

        scores = score_texts(texts, [[*references]], language)
        summary |= {"sacrebleu": scores.sacrebleu, "paper_bleu": scores.paper_bleu}
    return summary


app = App()


@app.command(help=help_text(__doc__))
def main(
    model: Annotated[Path, typer.Argument(help="Folder or name of a model, e.g. table2/embedded/en-de-base.")],
    src: Annotated[Path, typer.Option(help="Sentences to translate, one per line; may be gzip.")],
    ref: Annotated[Path | None, typer.Option(help="References, one per line, for BLEU.")] = None,
    lang: Annotated[str, typer.Option(help="Language of the references, e.g. de.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds per translator.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON object on one line.")] = False,
) -> None:
    """Compare translation with CTranslate2 on the same weights, in sentences per second."""
    if bool(ref) != bool(lang):
        raise UserError("--ref and --lang, the references' language, need each other: give both or neither")
    pairs = list(read_pairs(src, ref)) if ref else [(line, "") for line in read_lines(src)]
    pairs = [pair for pair in pairs if pair[0].strip()]
    if not pairs:
        raise UserError(f"{src} has no sentences; name a file with one sentence per line")
    folder = named_folder("average", model, "model.safetensors")
    print_result(measure(folder, pairs, lang, DecodingSettings(), rounds), as_json)


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.decoding")
