"""Table 2 of the paper (§6.1): BLEU and training cost of the base and big Transformer, printed and measured.

python -m workflows.reproduce_table2                                        # generated text, minutes
python -m workflows.reproduce_table2 --profile multi30k --data DIR          # real text, small
python -m workflows.reproduce_table2 --profile wmt14 --address auto         # the paper's
python -m workflows.reproduce_table2 --dev-bleu                             # dev BLEU over time
python -m workflows.reproduce_table2 --choose-decoding                      # beam, α (§6.1)
python -m workflows.reproduce_table2 --models base,recurrent,convolutional  # competitors
python -m workflows.reproduce_table2 --seeds 3                              # means, deviations
python -m workflows.reproduce_table2 --plan                                 # what would run, and why
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from workflows import stages
from workflows.cli import options
from workflows.cli.console import run_app
from workflows.cli.reproduce import Asked, app_of, chosen_names, requested
from workflows.engine.dag import Stage, Step
from workflows.experiment import Reproduction, Request
from workflows.profiles.loading import load_profile
from workflows.profiles.profile import Profile
from workflows.tables import table2
from workflows.tables.measured import Cell

# A score is computed in pipeline/evaluation/scoring.py, for stages.SCORE; tables/table2.py makes it a cell.
TABULATE = Stage("tabulating.tabulate", table2.tabulate, table2.Table2Artifact, follows_source=True)


def cells_of(
    profile: Profile,
    pairs: Collection[str],
    models: Collection[str],
    *,
    seeds: int = 1,
    dev_scores: bool = False,
    choose_decoding: bool = False,
) -> list[Cell]:
    """The DAG from text to scores, for each cell of `pairs` and `models` and each seed: §5.1, §5.2-5.4, §6.1.

    Seeds are consecutive, beginning with the recipe's. Several models train side by side, a thread each unless set.
    """
    cells = []
    for pair in pairs:
        of_pair = profile.for_pair(pair)
        text = stages.prepared(profile, pair)
        substituted = stages.word_by_word(text, of_pair.corpora[pair])
        for model in models:
            recipe = of_pair.recipes[model]
            training = recipe.training
            if len(pairs) * len(models) * seeds > 1 and not training.threads:  # more updates than of two threads each
                training = training.model_copy(update={"threads": 1, "workers": training.workers or 1})
            for seed in range(training.seed, training.seed + seeds):
                name = f"{model} seed {seed}" if seeds > 1 else model
                cell = stages.trained(
                    text,
                    name,
                    recipe.model_copy(update={"training": training.model_copy(update={"seed": seed})}),
                    of_pair.decoding,
                    with_dev_scores=dev_scores,
                    chosen_from=of_pair.choice if choose_decoding else None,
                )
                cells.append(replace(cell, model=model, word_by_word=substituted))
    return cells


def reproduction(
    profile: Profile, pairs: Sequence[str], models: Collection[str], request: Request, seeds: int = 1, **of_cells: bool
) -> Reproduction:
    """Returns the experiment: the table of the cells that `cells_of` returns."""
    cells = {
        f"{cell.pair} {cell.model}" + f" seed {cell.recipe.training.seed}" * (seeds > 1): cell
        for cell in cells_of(profile, pairs, models, seeds=seeds, **of_cells)
    }
    reports = {pair: stages.prepared(profile, pair).report for pair in pairs}

    def tabulate(failures: Mapping[str, str]) -> Step[table2.Table2Artifact]:
        measured = {name: cell for name, cell in cells.items() if name not in failures}
        of_pairs = {cell.pair: reports[cell.pair] for cell in measured.values()}
        reasons: dict[str, list[str]] = {}
        for name, why in failures.items():
            seed = f"seed {cells[name].recipe.training.seed}: " * (seeds > 1)
            reasons.setdefault(f"{cells[name].pair} {cells[name].model}", []).append(f"{seed}{why}")
        failed = {cell: "; ".join(of_cell) for cell, of_cell in reasons.items()}
        return TABULATE("table 2", [*measured.values()], failed, [*of_pairs.values()], request.command)

    return Reproduction(
        name="table2",
        params={"profile": profile.name, **({"seeds": seeds} if seeds > 1 else {})},
        models=cells,
        reports=reports,
        tabulate=tabulate,
    )


@options.with_options
def main(
    text: options.TextOptions,
    common: options.Common,
    dev_bleu: options.DevBleuOption = False,
    choose_decoding: Annotated[
        bool, typer.Option("--choose-decoding", help="Choose beam and α on the dev set, from the settings choice.*.")
    ] = False,
    pairs: Annotated[str | None, typer.Option(help="Language pairs, e.g. en-de.  [default: all]")] = None,
    models: Annotated[
        str | None, typer.Option(help="Models: base, big, recurrent, convolutional, long.  [default: base,big]")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs per model, with consecutive seeds.")] = 1,
) -> tuple[Reproduction, Asked]:
    """Returns the experiment and its request."""
    chosen = load_profile(**text.given(common))
    request = requested("table2", chosen, common)
    chosen_pairs = chosen_names("pairs", pairs, chosen.corpora)
    chosen_models = chosen_names("models", models, chosen.recipes, chosen.default_models)
    cells = {"dev_scores": dev_bleu, "choose_decoding": choose_decoding}
    return reproduction(chosen, chosen_pairs, chosen_models, request, seeds, **cells), request


if __name__ == "__main__":
    run_app(app_of("workflows.reproduce_table2"), "python -m workflows.reproduce_table2")
