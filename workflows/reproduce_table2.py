"""Table 2 of the paper (§6.1): BLEU and training cost of the base and big Transformer, measured beside the printed.

python -m workflows.reproduce_table2                                      # generated text, minutes
python -m workflows.reproduce_table2 --profile multi30k --data DIR        # real text, small
python -m workflows.reproduce_table2 --profile wmt14 --address auto       # the paper's text and settings
python -m workflows.reproduce_table2 --dev-bleu                           # BLEU over time on the dev set, in MLflow
python -m workflows.reproduce_table2 --plan                               # what is cached, what is to run
python -m workflows.reproduce_table2 --plan --profile wmt14 --gpus 8 --gpu h100   # forecasts disk, FLOP and hours
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

import typer

from pipeline.store.artifacts import TrainingRun
from workflows import stages
from workflows.cli.console import help_text, run_app
from workflows.cli.options import (
    AddressOption,
    ConfigOption,
    DataOption,
    DevBleuOption,
    FilesOption,
    GpuOption,
    GpusOption,
    PlanOption,
    ProfileOption,
    SetOption,
    StoreOption,
)
from workflows.engine.dag import Imported, Stage, Step
from workflows.experiment import Reproduction, chosen_names, reproduce, requested
from workflows.profiles.loading import load_profile
from workflows.profiles.profile import Profile, Recipe
from workflows.reports.corpus import CorpusReport
from workflows.tables import table2
from workflows.tables.measurements import Translation
from workflows.tables.render import render_terminal

TABULATE = Stage(
    "tabulating.tabulate",
    Imported("workflows.reports.table2:tabulate"),
    table2.Table2Artifact,
    computes=True,  # it builds the models that it draws
    follows_source=True,
)


@dataclass(frozen=True)
class Cell:
    """One model on one language pair, as steps of the DAG."""

    pair: str
    model: str
    recipe: Recipe
    training: Step[TrainingRun]
    evaluation: Translation
    report: Step[CorpusReport]
    """Describes the pair's text."""


def cells_of(
    profile: Profile, pairs: Collection[str], models: Collection[str], *, dev_bleu: bool = False
) -> list[Cell]:
    """The DAG from text to scores, for each cell of `pairs` and `models`: §5.1, §5.2-5.4, §6.1."""
    cells = []
    for pair in pairs:
        of_pair = profile.for_pair(pair)
        text = stages.prepared(profile, pair)
        substituted = stages.word_by_word(pair, of_pair.corpora[pair], text.corpus)
        for model in models:
            recipe = of_pair.recipes[model]
            training = stages.TRAIN(f"train {pair} {model}", text.dataset, recipe.training)
            evaluation = stages.evaluated(
                text,
                model,
                training,
                recipe.averaging,
                of_pair.decoding,
                word_by_word=substituted,
                with_dev_bleu=dev_bleu,
            )
            cells.append(Cell(pair, model, recipe, training, evaluation, text.report))
    return cells


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    profile: ProfileOption = None,
    data: DataOption = None,
    files: FilesOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    store: StoreOption = "runs",
    address: AddressOption = None,
    plan: PlanOption = False,
    gpus: GpusOption = None,
    gpu: GpuOption = None,
    dev_bleu: DevBleuOption = False,
    pairs: Annotated[str | None, typer.Option(help="Language pairs, e.g. en-de.  [default: all]")] = None,
    models: Annotated[str | None, typer.Option(help="Models, e.g. base.  [default: base,big]")] = None,
) -> None:
    """Builds the DAG, runs what is missing, prints the table."""
    chosen = load_profile(profile, data=data, files=files or [], config=config, overrides=overrides or [])
    request = requested("table2", chosen, config, overrides, store, address, plan, gpus, gpu)
    chosen_pairs = chosen_names("pairs", pairs, chosen.corpora)
    cells = cells_of(chosen, chosen_pairs, chosen_names("models", models, chosen.recipes), dev_bleu=dev_bleu)
    reports = {cell.pair: cell.report for cell in cells}
    table = TABULATE("table 2", [cell.evaluation for cell in cells], [*reports.values()], request.command)
    experiment = Reproduction(
        name="table2",
        params={"profile": chosen.name},
        models={f"{cell.pair} {cell.model}": cell.evaluation for cell in cells},
        reports=reports,
        tabulate=lambda _failures: table,
        show=lambda artifact, width: render_terminal(artifact.load(), width),
        figures=lambda artifact: artifact.load().figures(),
    )
    reproduce(experiment, request)


if __name__ == "__main__":
    run_app(app, "python -m workflows.reproduce_table2")
