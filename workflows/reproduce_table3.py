"""Table 3 of the paper (§6.2): ablations of the base Transformer, printed and measured.

python -m workflows.reproduce_table3                                      # generated text, all rows
python -m workflows.reproduce_table3 --profile multi30k --rows base,A1,B  # some; B: B1 and B2
python -m workflows.reproduce_table3 --seeds 3                            # means, deviations
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from pipeline.errors import UserError
from pipeline.settings import AveragingSettings, DecodingSettings
from workflows import stages
from workflows.cli import options
from workflows.cli.console import run_app
from workflows.cli.reproduce import Asked, app_of, requested
from workflows.engine.dag import Imported, Stage, Step
from workflows.experiment import Reproduction, Request
from workflows.profiles.loading import load_profile
from workflows.profiles.profile import Profile, Recipe
from workflows.tables import table3
from workflows.tables.measured import Cell
from workflows.tables.table3_rows import GridRow, rows

tabulate_rows = Imported("workflows.tables.table3_page:tabulate")
TABULATE = Stage("tabulating.tabulate_rows", tabulate_rows, table3.Table3Artifact, follows_source=True)


def trials_of(
    text: stages.Prepared,
    chosen: Sequence[GridRow],
    seeds: int,
    decoding: DecodingSettings,
    *,
    base_seeds: int = 1,
    dev_scores: bool = False,
) -> dict[str, Cell]:
    """Returns trials by name: each row with `seeds` seeds, its last checkpoint measured on the dev set (§6.2).

    Seeds are consecutive, beginning with that of the row's settings; base has at least `base_seeds`. A trial decodes
    with as many workers as it trains with, since other trials may run at the same time.
    """
    trials = {}
    for row in chosen:
        first, n_seeds = row.training.seed, max(seeds, base_seeds) if row.name == "base" else seeds
        for seed in range(first, first + n_seeds):
            name = f"{row.name} seed {seed}" if n_seeds > 1 else row.name
            settings = row.training.model_copy(update={"seed": seed})
            recipe = Recipe(training=settings, averaging=AveragingSettings(last=1))
            search = decoding.beside(settings, workers=settings.worker_bounds[0])
            trial = stages.trained(text, name, recipe, search, on_dev=True, with_dev_scores=dev_scores)
            trials[name] = replace(trial, model=row.name)  # the table adds the seed
    return trials


def rows_of(
    chosen: Sequence[GridRow], trials: Mapping[str, Cell], failures: Mapping[str, str]
) -> list[table3.RowTrainings]:
    """Groups trials with results into the table's rows. A row's failed trials become its reason."""
    found = []
    for row in chosen:
        names = [name for name, trial in trials.items() if trial.model == row.name]
        measured = tuple(trials[name] for name in names if name not in failures)
        reasons = [f"{name}: " * (len(names) > 1) + failures[name] for name in names if name in failures]
        found.append(table3.RowTrainings(row.name, row.difference, measured, "; ".join(reasons)))
    return found


def reproduction(
    profile: Profile, pair: str, asked: str | None, seeds: int, request: Request, *, dev_scores: bool = False
) -> Reproduction:
    """Returns the experiment: the requested rows on the text of the profile's grid, and their table."""
    grid = profile.grid
    text, chosen, base_seeds = stages.prepared(profile, pair, rows=grid.training), rows(grid, asked), grid.base_seeds
    trials = trials_of(text, chosen, seeds, profile.decoding, base_seeds=base_seeds, dev_scores=dev_scores)
    n_base = sum(trial.model == "base" for trial in trials.values())

    def tabulate(failures: Mapping[str, str]) -> Step[table3.Table3Artifact]:
        return TABULATE("table 3", rows_of(chosen, trials, failures), [text.report], request.command)

    return Reproduction(
        name="table3",
        params={"profile": profile.name, "pair": pair, "seeds": seeds, "base_seeds": n_base},
        models=trials,
        reports={pair: text.report},
        tabulate=tabulate,
        tuned=True,
    )


@options.with_options
def main(
    text: options.TextOptions,
    common: options.Common,
    dev_bleu: options.DevBleuOption = False,
    pair: Annotated[
        str | None, typer.Option("--pairs", "--pair", help="One language pair.  [default: the first]")
    ] = None,
    asked: Annotated[
        str | None, typer.Option("--rows", help="Rows or groups of rows, e.g. A,B1,big.  [default: all]")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=100, help="Runs per row, with seeds from 1; base gets at least grid.base_seeds.")
    ] = 1,
) -> tuple[Reproduction, Asked]:
    """Returns the experiment and its request."""
    chosen = load_profile(**text.given(common))
    pair = next(iter(chosen.corpora)) if pair is None else pair
    if pair not in chosen.corpora:
        raise UserError(f"--pairs {pair or repr(pair)}: the profile has {', '.join(chosen.corpora)}")
    chosen = chosen.for_pair(pair).for_grid()
    request = requested("table3", chosen, common)
    return reproduction(chosen, pair, asked, seeds, request, dev_scores=dev_bleu), request


if __name__ == "__main__":
    run_app(app_of("workflows.reproduce_table3"), "python -m workflows.reproduce_table3")
