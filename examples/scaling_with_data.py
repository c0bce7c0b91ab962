"""Table 2's models by the size of their text: nested subsets, one dev and test set, one vocabulary, equal FLOP.

aiayn split text.en text.de --out own                               # holds out the dev and the test set
python -m examples.scaling_with_data cut own/text.toml cut          # 5000.toml, 10000.toml, 20000.toml, ...
python -m examples.scaling_with_data --profile multi30k --files cut/5000.toml --files cut/10000.toml --plan

The options are those of `aiayn table2`; `forecast` before them forecasts the runs. Each subset is a language pair, such
as en-x-5000-de. All use the vocabulary of the last file, so name the largest last.
"""

import json
import sys
from dataclasses import replace
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from pipeline.corpora.files import FilesSettings
from pipeline.corpora.splitting import hash_of
from pipeline.text.lines import read_pairs, write_pairs
from workflows import reproduce_table2
from workflows.cli.console import run_app
from workflows.cli.forecast import FORECAST, Hardware, print_forecast
from workflows.cli.reproduce import Asked, app_of
from workflows.command_line import CommandLine, typed
from workflows.engine.dag import Step, in_order, resolved
from workflows.experiment import Reproduction
from workflows.stages import LEARN_VOCABULARY

MODULE, SMALLEST = "examples.scaling_with_data", 5_000  # pairs; the next is twice as large


def quoted(text: object) -> str:
    """Returns a TOML string, which JSON's are."""
    return json.dumps(str(text), ensure_ascii=False)


def cut(text: Path, out: Path) -> None:
    """Writes the largest subset in parts, by the hash of the source sentence, and a description of each subset."""
    out.mkdir(parents=True, exist_ok=True)
    settings = FilesSettings.load(text)
    source, target = settings.source, settings.target
    pairs = [pair for sides in settings.train for pair in read_pairs(sides.source, sides.target, drop=lambda _: None)]
    if len(pairs) < SMALLEST:
        raise SystemExit(f"{text} has {len(pairs):,} training pairs; the smallest subset has {SMALLEST:,}")
    pairs.sort(key=lambda pair: hash_of(pair[0]))
    parts, size, rest = list[str](), SMALLEST, iter(pairs)
    while size <= len(pairs):
        files = [f"{size}.{language}" for language in (source, target)]
        write_pairs(out / files[0], out / files[1], islice(rest, size if size == SMALLEST else size // 2))
        parts.append('{{source = "{}", target = "{}"}}'.format(*files))
        held_out = {"dev": settings.dev, **{f"test.{quoted(name)}": sides for name, sides in settings.test.items()}}
        sets = [
            f"{name} = {{source = {quoted(of.source)}, target = {quoted(of.target)}}}" for name, of in held_out.items()
        ]
        lines = [f'source = "{source}-x-{size}"', f'target = "{target}"', f"train = [{', '.join(parts)}]", *sets, ""]
        (out / f"{size}.toml").write_text("\n".join(lines), encoding="utf-8")
        size *= 2


@wraps(reproduce_table2.main)
def main(**options: Any) -> tuple[Reproduction, Asked]:
    """Returns Table 2, all of whose models have one vocabulary, and its request."""
    experiment, request = reproduce_table2.main(**options)
    steps = in_order(experiment.reports.values())
    vocabulary = [step for step in steps if step.stage is LEARN_VOCABULARY][-1]
    command = CommandLine(typed=f"python -m {MODULE} {typed(sys.argv[1:])}")

    def shared(step: Step[Any]) -> Any:
        if step.stage is LEARN_VOCABULARY:
            return vocabulary
        return replace(step, arguments=resolved(step.arguments, shared))

    def tabulate(failures: Any) -> Step[Any]:
        table = shared(experiment.tabulate(failures))
        return replace(table, arguments=(*table.arguments[:-1], command))

    models = {name: resolved(cell, shared) for name, cell in experiment.models.items()}
    reports = {pair: shared(report) for pair, report in experiment.reports.items()}
    shares = replace(experiment, models=models, reports=reports, tabulate=tabulate)
    return shares, replace(request, command=command)


if __name__ == "__main__":
    if sys.argv[1:2] == ["cut"]:
        del sys.argv[1]
        typer.run(cut)
    elif sys.argv[1:2] == ["forecast"]:
        del sys.argv[1]
        run_app(app_of(MODULE, print_forecast, Hardware, FORECAST), f"python -m {MODULE} forecast")
    else:
        run_app(app_of(MODULE), f"python -m {MODULE}")
