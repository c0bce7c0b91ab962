"""Benchmark of preparation at full size: raw text to token ids through the DAG on Ray, against sentencepiece alone.

python -m benchmarks.preparation                        # 200,000 pairs
python -m benchmarks.preparation --pairs 4500000        # as many as WMT14's English-German

`benchmarks.synthetic` generates the text, with WMT14's lengths and alphabets. The benchmark times the stages of profile
`wmt14` as a workflow runs them: read, clean, vocabulary, encode. Temporary files take some 1.2 kB a pair; TMPDIR says
where.
"""

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.contenders import print_result
from pipeline.corpora.files import FilePair, FilesSettings
from pipeline.store.artifacts import Shard
from workflows.cli.console import help_text, run_app
from workflows.profiles.translation import WMT14

PAIR = "en-de"
PAIRS_PER_FILE = 250_000
HELD_OUT_PAIRS = 1000
BARE_SHARDS = 4
"""Shards that each core encodes with sentencepiece alone."""


def measure(pairs: int, vocabulary_size: int) -> dict[str, Any]:
    """Runs the benchmark and returns what --json prints."""
    from benchmarks.synthetic import write_text
    from pipeline.environment import usable_cpus
    from pipeline.hardware import device_name
    from pipeline.store.store import Store
    from workflows import stages
    from workflows.engine import runner
    from workflows.engine.cluster import cluster, map_on_ray
    from workflows.engine.dag import in_order

    cores = usable_cpus()
    with tempfile.TemporaryDirectory(prefix="aiayn-") as folder, cluster(None):
        calls, files = _files(Path(folder) / "text", pairs)
        for _ in map_on_ray(write_text, calls):
            pass
        started_s = time.perf_counter()
        vocabulary = WMT14.vocabulary.model_copy(update={"size": vocabulary_size})
        profile = WMT14.model_copy(update={"corpora": {PAIR: files}, "pairs": {}, "vocabulary": vocabulary})
        text, store = stages.prepared(profile, PAIR), Store(Path(folder))
        (dataset,) = runner.run([text.dataset], store, [])
        seconds = time.perf_counter() - started_s
        shards = text.corpus.published(store).shards[: BARE_SHARDS * cores]
        alone = [*map_on_ray(bare_encoding, [(shard, dataset.folder / "joint.model") for shard in shards])]
        bare_pairs_s = cores * sum(done["pairs"] for done in alone) / sum(done["seconds"] for done in alone)
        rates = {}
        for step in in_order([text.dataset]):
            manifest = step.published(store).manifest
            rates[step.stage.name.split(".")[-1]] = {
                "seconds": manifest["seconds"],
                "pairs_s": pairs / manifest["seconds"],
                "peak_task_memory_gb": manifest["peak_task_memory_bytes"] / 1e9,
            }
        disk_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {
        "pairs": pairs,
        "cores": cores,
        "device_name": device_name("cpu"),
        "stages": rates,
        "seconds": seconds,
        "pairs_s": pairs / seconds,
        "sentencepiece_pairs_s": bare_pairs_s,
        "ratio_sentencepiece": pairs / seconds / bare_pairs_s,
        "peak_task_memory_gb": max(rate["peak_task_memory_gb"] for rate in rates.values()),
        "disk_gb": disk_bytes / 1e9,
    }


def bare_encoding(shard: Shard, model: Path) -> dict[str, float]:
    """Times sentencepiece encoding the pairs of a shard already in memory: no files, no arrays, no buckets."""
    from pipeline.text.lines import read_lines
    from pipeline.text.vocabulary import load

    processor = load(model)
    sides = [list(read_lines(side)) for side in (shard.source, shard.target)]
    started_s = time.perf_counter()
    for lines in sides:
        processor.encode(lines, add_eos=True, num_threads=1)
    return {"pairs": shard.pairs, "seconds": time.perf_counter() - started_s}


def _files(folder: Path, pairs: int) -> tuple[list[tuple[Any, ...]], FilesSettings]:
    """Returns the calls of `write_text` that write all splits, and the settings that read them."""
    folder.mkdir()
    sizes = [min(PAIRS_PER_FILE, pairs - begin) for begin in range(0, pairs, PAIRS_PER_FILE)]
    names = [*(f"train{number:03d}" for number in range(len(sizes))), "dev", "test"]
    files = [FilePair(source=folder / f"{name}.en", target=folder / f"{name}.de") for name in names]
    sizes += [HELD_OUT_PAIRS] * 2
    calls = [(file.source, file.target, size, seed) for seed, (file, size) in enumerate(zip(files, sizes, strict=True))]
    *train, dev, test = files
    return calls, FilesSettings(source="en", target="de", train=tuple(train), dev=dev, test={"test": test})


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    pairs: Annotated[int, typer.Option(min=1000, help="Sentence pairs to generate and prepare.")] = 200_000,
    vocabulary_size: Annotated[int, typer.Option(min=8, help="Pieces in the vocabulary.")] = WMT14.vocabulary.size,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON object on one line.")] = False,
) -> None:
    """Measures preparation of WMT14-like text (pairs per second, memory, disk) against sentencepiece alone."""
    print_result(measure(pairs, vocabulary_size), as_json)


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.preparation")
