"""Table 4 of the paper (§6.3): English constituency parsing by the Transformer, F1 printed and measured.

python -m workflows.reproduce_table4                                      # generated trees, minutes
python -m workflows.reproduce_table4 --treebank DIR                       # a treebank; WSJ: the paper's settings
python -m workflows.reproduce_table4 --treebank DIR --silver FILE         # also the semi-supervised row
python -m workflows.reproduce_table4 --plan                               # what would run, and why
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from workflows.cli import options
from workflows.cli.console import app_of, run_app
from workflows.engine.dag import Stage, Step
from workflows.experiment import Reproduction, Request, reproduce, requested
from workflows.parsers import ParserGrid
from workflows.profiles.parsing import ParsingProfile, load_parsing_profile
from workflows.tables import table4

TABULATE = Stage("tabulating.tabulate_parsers", table4.tabulate, table4.Table4Artifact, follows_source=True)

ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", help="embedded, treebank or wsj.  [default: from --config, else by treebank size]"),
]
TreebankOption = Annotated[
    Path | None,
    typer.Option("--treebank", help="Trees in Penn brackets: WSJ's folders 00 to 24, a folder, or a file."),
]
SilverOption = Annotated[
    list[Path] | None,
    typer.Option("--silver", help="File of automatically parsed trees, for the semi-supervised row. May be repeated."),
]
DevF1Option = Annotated[
    bool,
    typer.Option("--dev-f1", help="Also parse the dev set with every kept checkpoint: F1 over time in MLflow."),
]


def reproduction(profile: ParsingProfile, request: Request, *, dev_scores: bool = False) -> Reproduction:
    """Returns the experiment: one grid of runs per row of the profile, and their table."""
    grids = [ParserGrid(profile.for_pair(name), name, dev_scores) for name in profile.corpora]
    reports = {grid.name: grid.text.report for grid in grids}

    def tabulate(failures: Mapping[str, str]) -> Step[table4.Table4Artifact]:
        return TABULATE("table 4", [grid.row(failures) for grid in grids], [*reports.values()], request.command)

    return Reproduction(
        name="table4",
        params={"profile": profile.name, "rows": ", ".join(profile.corpora)},
        models={candidate.model: candidate for grid in grids for candidate in grid.candidates},
        reports=reports,
        tabulate=tabulate,
    )


@options.with_options
def main(
    common: options.Common,
    profile: ProfileOption = None,
    treebank: TreebankOption = None,
    silver: SilverOption = None,
    dev_f1: DevF1Option = False,
) -> None:
    """Builds the DAG, trains missing candidates, chooses on the dev set, prints the table."""
    chosen = load_parsing_profile(
        profile, treebank=treebank, silver=silver or [], config=common.config, overrides=common.overrides or []
    )
    request = requested("table4", chosen, common)
    reproduce(reproduction(chosen, request, dev_scores=dev_f1), request)


if __name__ == "__main__":
    run_app(app_of("workflows.reproduce_table4"), "python -m workflows.reproduce_table4")
