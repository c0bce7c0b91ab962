"""Benchmark of preparation at full size: from archives like WMT14's to token ids, by the DAG on Ray.

python -m benchmarks.preparation                                              # 200,000 pairs of English and German
python -m benchmarks.preparation --pair en-fr --pairs 40800000 --folder DIR   # as many as WMT14's English-French

It times the stages of profile `wmt14` in a workflow, from reading to the report, and sentencepiece beside them. Files
take about 1.1 kB per pair; --folder keeps them for another command: --config DIR/archives/wmt14.toml --store DIR.
"""

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from benchmarks.contenders import print_result
from pipeline.artifacts import Shard
from workflows.cli.console import App, help_text, run_app

BARE_SHARDS = 4
"""Shards per core for timing plain sentencepiece."""


def measure(folder: Path, pair: str, pairs: int, vocabulary_size: int | None) -> dict[str, Any]:
    """Runs the benchmark and returns the output of --json. Leaves archives and artifacts in `folder`, a new one."""
    from benchmarks.official_archives import CONFIG, write_archives
    from benchmarks.usage import Usage
    from pipeline.environment import usable_cpus
    from pipeline.hardware import device_name
    from pipeline.store.store import Store
    from workflows import stages
    from workflows.engine import runner
    from workflows.engine.cluster import cluster, map_on_ray
    from workflows.engine.dag import in_order
    from workflows.profiles.loading import load_profile

    cores, archives = usable_cpus(), folder / "archives"
    with cluster(None):
        archives.mkdir(parents=True)  # those of another run may be of other pairs, and its stages would not be timed
        write_archives(archives, pair.removeprefix("en-"), pairs)
        sizes = [f"pairs.{pair}.vocabulary.size={vocabulary_size}"] if vocabulary_size else []
        text = stages.prepared(load_profile(config=archives / CONFIG, overrides=sizes), pair)
        store, usage, started_s = Store(folder), Usage(folder), time.perf_counter()
        targets = [text.dataset, text.report, *text.test_sets.values()]
        runner.run(targets, store, [usage])
        seconds = time.perf_counter() - started_s
        model = text.dataset.published(store).folder / "joint.model"
        shards = text.corpus.published(store).shards[: BARE_SHARDS * cores]
        alone = [*map_on_ray(bare_encoding_s, [(shard, model) for shard in shards])]
        bare_pairs_s = cores * sum(shard.pairs for shard in shards) / sum(alone)
    rates = {}
    for step in in_order(targets):
        manifest = step.published(store).manifest
        rates[step.label] = {
            "seconds": manifest["seconds"],
            "pairs_s": pairs / manifest["seconds"],
            "cpu_s": usage.cpu_s.get(step.label),
        }
    return {
        "pairs": pairs,
        "cores": cores,
        "device_name": device_name("cpu"),
        "stages": rates,
        "seconds": seconds,
        "pairs_s": pairs / seconds,
        "sentencepiece_pairs_s": bare_pairs_s,
        "ratio_sentencepiece": pairs / seconds / bare_pairs_s,
        **usage.summary(),
    }


def bare_encoding_s(shard: Shard, model: Path) -> float:
    """Times sentencepiece on a shard's pairs in memory, without files, arrays or buckets."""
    from pipeline.text.lines import read_lines
    from pipeline.text.vocabulary import load

    processor = load(model)
    sides = [list(read_lines(side)) for side in (shard.source, shard.target)]
    started_s = time.perf_counter()
    for lines in sides:
        processor.encode(lines, add_eos=True, num_threads=1)
    return time.perf_counter() - started_s


app = App()


@app.command(help=help_text(__doc__))
def main(
    pairs: Annotated[int, typer.Option(min=1000, help="Sentence pairs to generate and prepare.")] = 200_000,
    pair: Annotated[Literal["en-de", "en-fr"], typer.Option(help="Language pair.")] = "en-de",
    folder: Annotated[Path | None, typer.Option(help="New folder to keep.  [default: a temporary one]")] = None,
    vocabulary_size: Annotated[int | None, typer.Option(min=8, help="Pieces.  [default: the profile's]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON object on one line.")] = False,
) -> None:
    """Compare preparation of WMT14-like text with plain sentencepiece: speed, CPU time, memory, disk."""
    with tempfile.TemporaryDirectory(prefix="aiayn-") as temporary:
        print_result(measure((folder or Path(temporary)).absolute(), pair, pairs, vocabulary_size), as_json)


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.preparation")
