"""Table 4 of the paper (§6.3): English constituency parsing by the Transformer, F1 printed and measured.

python -m workflows.reproduce_table4                               # generated trees, minutes
python -m workflows.reproduce_table4 --treebank DIR                # WSJ has the paper's settings
python -m workflows.reproduce_table4 --treebank DIR --silver FILE  # also the semi-supervised row
python -m workflows.reproduce_table4 --plan                        # what would run, and why
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from workflows import stages
from workflows.cli import options
from workflows.cli.console import run_app
from workflows.cli.reproduce import Asked, app_of, requested
from workflows.engine.dag import Stage, Step
from workflows.experiment import Reproduction, Request
from workflows.profiles.parsing import SEMI_SUPERVISED, ParsingProfile, load_parsing_profile
from workflows.tables import table4
from workflows.tables.measured import Cell
from workflows.tables.table3_rows import varied

TABULATE = Stage("tabulating.tabulate_parsers", table4.tabulate, table4.Table4Artifact, follows_source=True)

ProfileOption = Annotated[
    str | None, typer.Option(help="embedded, treebank or wsj.  [default: from --config, else by treebank size]")
]
TreebankOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER|FILE", help="Trees in Penn brackets, e.g. WSJ's folders 00 to 24.")
]
SilverOption = Annotated[
    list[Path] | None, typer.Option(help="Automatically parsed trees, for the semi-supervised row. May be repeated.")
]
DevF1Option = Annotated[
    bool, typer.Option("--dev-f1", help="Also parse the dev set with every kept checkpoint: F1 over time in MLflow.")
]


@dataclass(frozen=True)
class ParserGrid:
    """The candidates for one row of the table."""

    profile: ParsingProfile
    """The profile with the row's settings applied."""
    name: str
    """The row's key in the profile: supervised or semi-supervised."""
    data: str
    """A short name of the trees, without the silver ones."""
    with_dev_scores: bool = False
    """Whether to score every kept checkpoint on the dev set."""

    @cached_property
    def text(self) -> stages.Prepared:
        """The trees as training pairs: sentences and symbols."""
        return stages.prepared(self.profile, self.name)

    @cached_property
    def candidates(self) -> list[Cell]:
        """One run per combination of dropouts and learning rate, scored on the dev set."""
        choice, recipe = self.profile.choice, self.profile.recipes["parser"]
        optimizer = recipe.training.optimizer
        grid = list(product(choice.dropouts, choice.attention_dropouts, choice.learning_rate_scales))
        candidates = []
        for dropout, attention_dropout, (scale, warmup) in grid:
            of_attention = f" attention {attention_dropout:g}" if len(choice.attention_dropouts) > 1 else ""
            rate = f"rate {scale:g}" + f" warm-up {warmup}" * bool(warmup)
            name = f"dropout {dropout:g}{of_attention} {rate}" if len(grid) > 1 else ""
            changes = {"dropout": dropout, "attention_dropout": attention_dropout}
            changes["learning_rate_scale"] = scale * optimizer.learning_rate_scale
            changes["warmup_steps"] = warmup or optimizer.warmup_steps
            training = varied(recipe.training, name, changes)
            decoding = self.profile.decoding.beside(training, workers=training.worker_bounds[0])
            own = recipe.model_copy(update={"training": training})
            candidate = stages.trained(
                self.text, name, own, decoding, on_dev=True, with_dev_scores=self.with_dev_scores, of_trees=True
            )
            candidates.append(replace(candidate, model=f"{self.name} {name}".strip(), data=self.data))
        return candidates

    def row(self, failures: Mapping[str, str]) -> table4.ParserRow:
        """Returns the row, chosen from the candidates with results."""
        candidates = tuple(candidate for candidate in self.candidates if candidate.model not in failures)
        test_set = next(iter(self.text.test_sets.values()))
        baseline = stages.RIGHT_BRANCHING(f"right-branching {self.name}", self.text.corpus, test_set)
        decoding, found = self.profile.decoding, dict[str, Any]()
        if candidates:
            entries = [(candidate.model, candidate.checkpoint, *candidate.scores) for candidate in candidates]
            beams = list(self.profile.choice.beam_sizes)
            parser = stages.CHOOSE_PARSER(f"choose {self.name}", entries, self.text.dev, decoding, beams)
            name = f"{self.name} test"
            hypotheses = stages.DECODE(f"parse {name}", parser, test_set, decoding, parser)
            parses = stages.REBUILD_PARSES(f"rebuild {name}", hypotheses, test_set)
            scores = stages.SCORE_PARSES(f"score {name}", parses)
            found = {"parser": parser, "hypotheses": hypotheses, "parses": parses, "scores": scores}
        return table4.ParserRow(
            training="semi-supervised" if self.name == SEMI_SUPERVISED else "WSJ only, discriminative",
            data=self.data,
            candidates=candidates,
            failures={failed.model: failures[failed.model] for failed in self.candidates if failed.model in failures},
            baseline=stages.SCORE_PARSES(f"score right-branching {self.name}", baseline),
            **found,
        )


def reproduction(profile: ParsingProfile, request: Request, *, dev_scores: bool = False) -> Reproduction:
    """Returns the experiment: one grid of runs per row of the profile, and their table."""
    grids = [ParserGrid(profile.for_pair(name), name, profile.data, dev_scores) for name in profile.corpora]
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
) -> tuple[Reproduction, Asked]:
    """Returns the experiment and its request."""
    chosen = load_parsing_profile(
        profile, treebank=treebank, silver=silver or [], config=common.config, overrides=common.overrides or []
    )
    request = requested("table4", chosen, common)
    return reproduction(chosen, request, dev_scores=dev_f1), request


if __name__ == "__main__":
    run_app(app_of("workflows.reproduce_table4"), "python -m workflows.reproduce_table4")
