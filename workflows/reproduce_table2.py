"""Table 2 of the paper (§6.1): BLEU and training cost of the base and big Transformer, measured beside the printed.

python -m workflows.reproduce_table2                                      # generated text, minutes
python -m workflows.reproduce_table2 --profile multi30k --data DIR        # real text, small
python -m workflows.reproduce_table2 --profile wmt14 --address auto       # the paper's text and settings
python -m workflows.reproduce_table2 --plan                               # what is cached, what is to run
python -m workflows.reproduce_table2 --plan --profile wmt14 --gpus 8 --gpu h100   # disk, FLOP and hours foretold
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import UserError
from pipeline.store.artifacts import TrainingRun
from workflows import stages
from workflows.console.command import console, help_text, run_app
from workflows.console.options import (
    AddressOption,
    ConfigOption,
    DataOption,
    GpuOption,
    GpusOption,
    PlanOption,
    ProfileOption,
    SetOption,
    StoreOption,
)
from workflows.engine.dag import Stage, Step, substitute
from workflows.engine.progress import print_plan, view
from workflows.engine.runner import run
from workflows.forecast.estimate import Planned, forecast
from workflows.forecast.hardware import find, only_with_plan
from workflows.forecast.render import render
from workflows.profiles import Profile, load_profile
from workflows.reports.corpus import CorpusReport
from workflows.reports.publish import tabulate
from workflows.tables import table2
from workflows.tables.measurements import Measured, MeasuredInputs
from workflows.tracking.curves import TrackedModel, send_corpus_report, send_curves, send_results, tracked
from workflows.tracking.tracker import Tracker, default_uri, ui_command

TABULATE = Stage("tabulating.tabulate", tabulate, table2.Table2Artifact, follows_source=True)


@dataclass(frozen=True)
class Cell:
    """One model on one language pair, as steps of the DAG."""

    pair: str
    model: str
    training: Step
    inputs: MeasuredInputs
    report: Step
    """Of the pair's text."""


def cells_of(profile: Profile, pairs: Collection[str], models: Collection[str]) -> list[Cell]:
    """The DAG from text to scores, for each cell of `pairs` and `models`: §5.1, §5.2-5.4, §6.1."""
    cells = []
    for pair in pairs:
        text = stages.prepared(profile, pair)
        substituted = stages.word_by_word(pair, profile.corpora[pair], text.corpus)
        for model in models:
            recipe = profile.for_pair(pair).recipes[model]
            training = stages.TRAIN(f"train {pair} {model}", text.dataset, recipe.training)
            inputs = stages.evaluated(
                text, model, training, recipe.averaging, profile.decoding, word_by_word=substituted
            )
            cells.append(Cell(pair, model, training, inputs, text.report))
    return cells


def _chosen(option: str, asked: str | None, available: Collection[str]) -> list[str]:
    """The comma-separated names asked for, all where none are."""
    names = [name.strip() for name in asked.split(",")] if asked else list(available)
    for name in names:
        if name not in available:
            raise UserError(f"--{option} {name}: the profile has {', '.join(available)}")
    return names


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    profile: ProfileOption = None,
    data: DataOption = None,
    files: Annotated[
        list[Path] | None, typer.Option(help="TOML file naming text of your own; may be repeated, one a language pair.")
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    pairs: Annotated[str | None, typer.Option(help="Language pairs, e.g. en-de.  [default: all]")] = None,
    models: Annotated[str | None, typer.Option(help="Models, e.g. base.  [default: base,big]")] = None,
    store: StoreOption = Path("runs"),
    address: AddressOption = None,
    plan: PlanOption = False,
    gpus: GpusOption = None,
    gpu: GpuOption = None,
) -> None:
    """Builds the DAG, runs what is missing, prints the table."""
    only_with_plan(plan, gpus, gpu)
    chosen = load_profile(profile, data=data, files=files or [], config=config, overrides=overrides or [])
    cells = cells_of(chosen, _chosen("pairs", pairs, chosen.corpora), _chosen("models", models, chosen.recipes))
    reports = list(dict.fromkeys(cell.report for cell in cells))
    target = TABULATE("table 2", [cell.inputs for cell in cells], reports)
    stages_folder = store.absolute() / "store"
    if plan:
        planned = [_planned(cell, chosen) for cell in cells]
        hardware = find(gpus, gpu, planned[0].training.device)
        print_plan(console, target, stages_folder)
        console.print(render(forecast(chosen, planned, hardware, store)))
        return
    tracker = Tracker(default_uri(store), "table2", store)
    tracked_models = [
        TrackedModel(
            f"{cell.pair} {cell.model}",
            cell.training,
            chosen.for_pair(cell.pair).recipes[cell.model].model_dump(mode="json"),
            {"pair": cell.pair, "model": cell.model, "profile": chosen.name},
        )
        for cell in cells
    ]
    with tracked(tracker, target, f"table2 {chosen.name}", {"profile": chosen.name}, tracked_models) as curves:
        (artifact,) = run([target], stages_folder, [view(console), curves], address)
        table = table2.Table2Artifact(artifact.folder)
        for cell in cells:
            send_curves(tracker, cell.training.fingerprint, TrainingRun(cell.training.folder(stages_folder)))
            inputs = substitute(cell.inputs, lambda step: step.artifact(stages_folder))
            measured = Measured.from_artifacts(inputs)
            if measured:
                send_results(tracker, cell.training.fingerprint, measured)
                tracker.translator(cell.training.fingerprint, inputs.checkpoint)
        for report in reports:
            send_corpus_report(tracker, CorpusReport(report.folder(stages_folder)), report.fingerprint)
        tracker.artifacts(table.folder, target.fingerprint)
    console.print()
    console.print(table2.render_terminal(table.load(), console.width))
    console.print(f"\nreport: {table.folder / 'report.html'}", highlight=False, soft_wrap=True)
    console.print(f"curves: {ui_command(tracker.uri)}", highlight=False, soft_wrap=True)


def _planned(cell: Cell, profile: Profile) -> Planned:
    """Its averaged model is kept in the store and in MLflow."""
    training = profile.for_pair(cell.pair).recipes[cell.model].training
    return Planned(f"{cell.pair} {cell.model}", cell.pair, training, models=2)


if __name__ == "__main__":
    run_app(app, "python -m workflows.reproduce_table2")
