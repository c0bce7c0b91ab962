"""Table 3 of the paper (§6.2): ablations of the base Transformer, printed and measured.

python -m workflows.reproduce_table3                                      # generated text: all 20 rows
python -m workflows.reproduce_table3 --profile multi30k --rows base,A1,B  # real text, some rows; a letter is a group
python -m workflows.reproduce_table3 --seeds 3                            # every row: mean and standard deviation
"""

from collections.abc import Mapping
from typing import Annotated

import typer

from pipeline.errors import UserError
from workflows import stages
from workflows.cli import options
from workflows.cli.console import app_of, run_app
from workflows.cli.text_options import TextOptions
from workflows.engine.dag import Imported, Stage, Step
from workflows.experiment import Reproduction, Request, reproduce, requested
from workflows.profiles.profile import Profile
from workflows.tables import table3
from workflows.tables.table3_rows import rows
from workflows.trials import rows_of, trials_of

TABULATE = Stage(
    "tabulating.tabulate_rows",
    Imported("workflows.reports.table3:tabulate"),
    table3.Table3Artifact,
    follows_source=True,
)


def reproduction(
    profile: Profile,
    pair: str,
    asked: str | None,
    seeds: int,
    request: Request,
    *,
    dev_scores: bool = False,
    name: str = "",
) -> Reproduction:
    """Returns the experiment: the requested rows on the text of the profile's grid, and their table.

    Step labels contain `name`, by default the pair.
    """
    text = stages.prepared(profile, pair, name)
    base_seeds = profile.grid.base_seeds
    trials = trials_of(
        text, rows(profile.grid, asked), seeds, profile.decoding, base_seeds=base_seeds, dev_scores=dev_scores
    )

    def tabulate(failures: Mapping[str, str]) -> Step[table3.Table3Artifact]:
        return TABULATE("table 3", rows_of(trials, failures), [text.report], request.command)

    return Reproduction(
        name="table3",
        params={
            "profile": profile.name,
            "pair": pair,
            "seeds": seeds,
            "base_seeds": sum(trial.row.name == "base" for trial in trials),
        },
        models={trial.name: trial.evaluation for trial in trials},
        reports={pair: text.report},
        tabulate=tabulate,
        tuned=True,
    )


@options.with_options
def main(
    text: TextOptions,
    common: options.Common,
    hardware: options.Hardware,
    dev_bleu: options.DevBleuOption = False,
    pair: Annotated[str | None, typer.Option(help="Language pair.  [default: the profile's first]")] = None,
    asked: Annotated[
        str | None, typer.Option("--rows", help="Rows or groups of rows, e.g. A,B1,big.  [default: all]")
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(min=1, max=100, help="Runs per row, with seeds from 1; base gets at least grid.base_seeds."),
    ] = 1,
) -> None:
    """Trains missing rows and prints the table."""
    chosen = text.load(common)
    pair = next(iter(chosen.corpora)) if pair is None else pair
    if pair not in chosen.corpora:
        raise UserError(f"--pair {pair or repr(pair)}: the profile has {', '.join(chosen.corpora)}")
    chosen = chosen.for_pair(pair).for_grid()
    request = requested("table3", chosen, common, hardware)
    reproduce(reproduction(chosen, pair, asked, seeds, request, dev_scores=dev_bleu), request)


if __name__ == "__main__":
    run_app(app_of("workflows.reproduce_table3"), "python -m workflows.reproduce_table3")
