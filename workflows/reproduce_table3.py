"""Table 3 of the paper (§6.2): what each choice of the base Transformer is worth, measured beside the printed.

python -m workflows.reproduce_table3                                      # generated text: all 20 rows
python -m workflows.reproduce_table3 --profile multi30k --rows base,A1,B  # real text, some rows; a letter is a group
python -m workflows.reproduce_table3 --seeds 3                            # mean and standard deviation
python -m workflows.reproduce_table3 --params                             # parameters counted, nothing trained
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from ray.tune.schedulers import TrialScheduler

from model.config import BASE
from model.parameters import count
from pipeline.errors import UserError
from pipeline.settings import AveragingSettings, DecodingSettings, TrainingSettings
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
from workflows.engine.cluster import cluster
from workflows.engine.dag import Stage, substitute, to_run
from workflows.engine.grid import Trial, Unfinished, asha, run_grid
from workflows.engine.progress import print_plan, view
from workflows.engine.runner import run
from workflows.forecast.estimate import Planned, forecast
from workflows.forecast.hardware import find, only_with_plan
from workflows.forecast.render import render
from workflows.paper import VARIATIONS
from workflows.profiles import load_profile
from workflows.reports.corpus import CorpusReport
from workflows.reports.publish import tabulate_rows
from workflows.tables import parameter_counts, table3
from workflows.tables.measurements import Measured, MeasuredInputs
from workflows.tables.table3 import SPLIT, RowInputs
from workflows.tables.table3_rows import GridRow, chosen, rows
from workflows.tables.table3_text import render_terminal
from workflows.tracking.curves import TrackedModel, send_corpus_report, send_curves, send_results, tracked
from workflows.tracking.tracker import Status, Tracker, default_uri, ui_command

TABULATE = Stage("tabulating.tabulate_rows", tabulate_rows, table3.Table3Artifact, follows_source=True)
LAST_CHECKPOINT = AveragingSettings(last=1)
"""Table 3 averages none (§6.2)."""
RUNGS = 9
"""ASHA asks first after this part of base's updates."""
STATUS: dict[str, Status] = {"failed": "FAILED", "stopped": "KILLED"}
"""Of a trial without results, in MLflow's words."""


@dataclass(frozen=True)
class RowTrial:
    """A training of a row with one seed, and what is measured of it."""

    row: GridRow
    trial: Trial
    inputs: MeasuredInputs


def trials_of(
    text: stages.Prepared, chosen_rows: Sequence[GridRow], seeds: int, decoding: DecodingSettings
) -> list[RowTrial]:
    """Each row trained with `seeds` seeds and measured on the dev set: last checkpoint, beam search (§6.2).

    A trial decodes with as many workers as it trains with, since others run beside it.
    """
    trials = []
    for row in chosen_rows:
        for seed in range(1, seeds + 1):
            name = f"{row.name} seed {seed}" if seeds > 1 else row.name
            settings = row.training.model_copy(update={"seed": seed}) if seeds > 1 else row.training
            training = stages.TRAIN(f"train {text.pair} {name}", text.dataset, settings)
            beside = decoding.model_copy(update={"workers": settings.workers})
            inputs = stages.evaluated(text, name, training, LAST_CHECKPOINT, beside, split=SPLIT)
            results: Any = (inputs.scores, inputs.perplexity, inputs.cost)  # steps
            trials.append(RowTrial(row, Trial(name, training, results), inputs))
    return trials


def inputs_of(trials: Sequence[RowTrial], unfinished: Mapping[str, Unfinished]) -> list[RowInputs]:
    """The table's rows, from the trials that have results; of a row that has none, why."""
    by_row: dict[str, list[RowTrial]] = {}
    for trial in trials:
        by_row.setdefault(trial.row.name, []).append(trial)
    inputs = []
    for name, of_row in by_row.items():
        without = {one.trial.name: unfinished[one.trial.name] for one in of_row if one.trial.name in unfinished}
        reason = "; ".join(
            why.reason if len(of_row) == 1 else f"{trial}: {why.reason}" for trial, why in without.items()
        )
        measured = tuple(one.inputs for one in of_row if one.trial.name not in unfinished)
        state: Literal["measured", "failed", "stopped"] = "measured" if measured else next(iter(without.values())).state
        inputs.append(RowInputs(name, of_row[0].row.difference, measured, state, reason))
    return inputs


def longest_first(trials: Sequence[RowTrial]) -> list[Trial]:
    """So that no long training starts when all others are done."""

    def size(one: RowTrial) -> int:
        return count(one.row.training.model) * one.row.training.updates

    return [one.trial for one in sorted(trials, key=size, reverse=True)]


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    profile: ProfileOption = None,
    data: DataOption = None,
    files: Annotated[Path | None, typer.Option(help="TOML file naming text of your own.")] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    pair: Annotated[str | None, typer.Option(help="Language pair.  [default: the profile's first]")] = None,
    asked: Annotated[
        str | None, typer.Option("--rows", help="Rows or groups of rows, e.g. A,B1,big.  [default: all]")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Trainings of each row, with seeds 1 to N.")] = 1,
    scheduler: Annotated[
        str, typer.Option(help="fifo: every row to its end; asha: rows of worse dev perplexity are stopped early.")
    ] = "fifo",
    store: StoreOption = Path("runs"),
    address: AddressOption = None,
    plan: PlanOption = False,
    gpus: GpusOption = None,
    gpu: GpuOption = None,
    params: Annotated[bool, typer.Option("--params", help="Count the parameters of each row and exit.")] = False,
    vocabulary_size: Annotated[
        int | None,
        typer.Option(min=1, max=10_000_000, help="With --params: rows of the embedding.  [default: 37000]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --params: print one JSON object.")] = False,
) -> None:
    """Trains the rows that are not in the store, prints the table; or counts parameters."""
    only_with_plan(plan, gpus, gpu)
    if params:
        print_counts(asked, vocabulary_size or BASE.vocabulary_size, as_json)
        return
    if as_json or vocabulary_size:
        raise UserError("--json and --vocabulary-size need --params; the trained table's table3.json is in its folder")
    if scheduler not in ("fifo", "asha"):
        raise UserError(f"--scheduler {scheduler}: choose fifo or asha")
    chosen_profile = load_profile(
        profile, data=data, files=[files] if files else [], config=config, overrides=overrides or []
    )
    pair = pair or next(iter(chosen_profile.corpora))
    if pair not in chosen_profile.corpora:
        raise UserError(f"--pair {pair}: the profile has {', '.join(chosen_profile.corpora)}")
    chosen_profile = chosen_profile.for_pair(pair)
    text = stages.prepared(chosen_profile, pair)
    chosen_rows = rows(chosen_profile.grid, asked)
    trials = trials_of(text, chosen_rows, seeds, chosen_profile.decoding)
    if plan:
        planned = [Planned(f"{pair} {row.name}", pair, row.training, times=seeds) for row in chosen_rows]
        hardware = find(gpus, gpu, planned[0].training.device)
        print_plan(console, TABULATE("table 3", inputs_of(trials, {}), [text.report]), store.absolute() / "store")
        console.print(render(forecast(chosen_profile, planned, hardware, store)))
        return
    params_told = {"profile": chosen_profile.name, "pair": pair, "seeds": seeds, "scheduler": scheduler}
    base = chosen_profile.grid.training
    longest, rung = max(one.row.training.updates for one in trials), -(-base.updates // RUNGS)
    reproduce(text, trials, base, asha(longest, rung) if scheduler == "asha" else None, params_told, store, address)


def reproduce(
    text: stages.Prepared,
    trials: Sequence[RowTrial],
    base: TrainingSettings,
    scheduler: TrialScheduler | None,
    told: Mapping[str, Any],
    store: Path,
    address: str | None,
) -> None:
    """Makes what is missing, tells MLflow, prints the table; `told` are the parent run's parameters."""
    folder, target = store.absolute() / "store", TABULATE("table 3", inputs_of(trials, {}), [text.report])
    tracker = Tracker(default_uri(store), "table3", store)
    models = [_tracked_model(one, text) for one in trials]
    with (
        tracked(tracker, target, f"table3 {told['profile']}", told, models) as curves,
        cluster(address) if to_run([target], folder) else nullcontext(),
    ):
        watchers = [view(console), curves]
        run([text.corpus, text.dataset], folder, watchers, address)
        unfinished = run_grid(longest_first(trials), folder, watchers, address, layout=base, scheduler=scheduler)
        if len(unfinished) == len(trials):
            first = trials[0].trial.name
            raise UserError(f"no row was trained; {first} {unfinished[first].state}: {unfinished[first].reason}")
        target = TABULATE("table 3", inputs_of(trials, unfinished), [text.report])
        (artifact,) = run([target], folder, watchers, address)
        table = table3.Table3Artifact(artifact.folder)
        for one in trials:
            _tell_results(tracker, one, unfinished.get(one.trial.name), folder)
        send_corpus_report(tracker, CorpusReport(text.report.folder(folder)), text.report.fingerprint)
        tracker.artifacts(table.folder, target.fingerprint)
    console.print()
    console.print(render_terminal(table.load(), console.width))
    console.print(f"\nreport: {table.folder / 'report.html'}", highlight=False, soft_wrap=True)
    console.print(f"curves: {ui_command(tracker.uri)}", highlight=False, soft_wrap=True)


def print_counts(asked: str | None, vocabulary_size: int, as_json: bool) -> None:
    """The parameters of the paper's rows, counted beside the printed counts."""
    variations = [VARIATIONS[name] for name in chosen([*VARIATIONS], asked)]
    counted = parameter_counts.parameter_rows(vocabulary_size, variations)
    if as_json:
        print(json.dumps(parameter_counts.to_json(vocabulary_size, counted), ensure_ascii=False, indent=2))
    else:
        console.print(parameter_counts.render_terminal(vocabulary_size, counted))


def _tracked_model(one: RowTrial, text: stages.Prepared) -> TrackedModel:
    tags = {"pair": text.pair, "row": one.row.name}
    settings = one.row.training.model_dump(mode="json")
    return TrackedModel(one.trial.name, one.trial.training, {"row": one.row.name, **settings}, tags)


def _tell_results(tracker: Tracker, one: RowTrial, without: Unfinished | None, store: Path) -> None:
    """What was measured of a trial, or that it is `without` results, to MLflow."""
    training = one.trial.training
    if without:
        tracker.end_model(training.fingerprint, STATUS[without.state])
        return
    send_curves(tracker, training.fingerprint, TrainingRun(training.folder(store)))
    measured = Measured.from_artifacts(substitute(one.inputs, lambda step: step.artifact(store)))
    if measured:
        send_results(tracker, training.fingerprint, measured)


if __name__ == "__main__":
    run_app(app, "python -m workflows.reproduce_table3")
