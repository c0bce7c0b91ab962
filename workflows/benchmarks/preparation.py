"""Benchmark of preparation at full size: raw text to token ids through the DAG on Ray, against sentencepiece alone.

aiayn bench prepare                        # 200 000 pairs
aiayn bench prepare --pairs 4500000        # as many as WMT14's English-German

`pipeline.corpora.synthetic` generates the text, with WMT14's lengths, alphabets and noise. The benchmark times the
stages of profile `wmt14` as a workflow runs them: read, clean, vocabulary, encode. It then measures, on one core, how
long planning an epoch takes and how fast a training's updates are read, compared with what a GPU would consume.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipeline.settings import TrainingSettings
from workflows.benchmarks.load import sentence
from workflows.benchmarks.rounds import with_status_line
from workflows.console.command import console, run_app
from workflows.profiles import WMT14


def prepare(
    pairs: Annotated[int, typer.Option(min=1000, help="Sentence pairs to generate and prepare.")] = 200_000,
    plan_pairs: Annotated[
        int | None, typer.Option(min=1000, help="Sentence pairs in the planned epoch.  [default: 8 times --pairs]")
    ] = None,
    vocabulary_size: Annotated[int, typer.Option(min=8, help="Pieces in the vocabulary.")] = WMT14.vocabulary.size,
    scratch: Annotated[Path | None, typer.Option(help="Folder for temporary files.  [default: the system's]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure preparation of WMT14-like text (pairs per second, memory, disk) against sentencepiece alone."""
    from workflows.benchmarks.preparation_rates import measure

    folder = scratch or Path(tempfile.gettempdir())
    result = with_status_line(lambda show: measure(pairs, plan_pairs or 8 * pairs, vocabulary_size, folder, show))
    if as_json:
        typer.echo(json.dumps(result))
    else:
        print_tables(result)
        console.print(sentence(result["load"]), highlight=False, soft_wrap=True)


def print_tables(result: dict[str, Any]) -> None:
    """Prints the result of `measure` for people to read."""
    table = Table(title=f"{result['pairs']} pairs, {result['cores']} cores, {result['device_name']}")
    table.add_column("stage")
    for heading in ("seconds", "pairs/s", "peak memory of a task, GB"):
        table.add_column(heading, justify="right")
    for name, rates in {**result["stages"], "all": result}.items():
        table.add_row(name, f"{rates['seconds']:.1f}", f"{rates['pairs_s']:.0f}", f"{rates['peak_task_memory_gb']:.2f}")
    console.print(table)
    plan, reading = result["plan"], result["reading"]
    for line in (
        f"sentencepiece alone: {result['sentencepiece_pairs_s']:.0f} pairs/s with one process per core; "
        f"the whole preparation runs at {result['ratio_sentencepiece']:.2f} times that rate",
        f"disk: {result['disk_gb']:.2f} GB, including the text before preparation",
        f"planning an epoch of {plan['pairs']} pairs on one core: {plan['seconds']:.1f} s, "
        f"{plan['peak_memory_gb']:.2f} GB, {plan['padding_fraction']:.1%} padding",
        f"reading on one core: {reading['updates_s']:.0f} updates/s of {TrainingSettings().budget_tokens} tokens, "
        f"{reading['target_tokens_s']:.0f} target tokens/s, {reading['ratio_gpu']:.1f} times what an "
        f"{reading['gpu']} consumes training the base model at {reading['assumed_flop_s'] / 1e12:.0f} TFLOP/s "
        f"(an assumption: {reading['assumed_fraction']:.0%} of its dense bfloat16 rate)",
    ):
        console.print(line, highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point of `python -m workflows.benchmarks.preparation`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(prepare)
    run_app(app, "python -m workflows.benchmarks.preparation")


if __name__ == "__main__":
    main()
