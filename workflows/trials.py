"""The runs of Table 3 (§6.2), as steps of the DAG: each row with its seeds, measured on the dev set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.settings import AveragingSettings, DecodingSettings
from workflows import stages
from workflows.profiles.profile import Recipe
from workflows.tables import table3
from workflows.tables.measurements import Translation
from workflows.tables.table3_rows import GridRow

LAST_CHECKPOINT = AveragingSettings(last=1)
"""Table 3 does not average checkpoints (§6.2)."""


@dataclass(frozen=True)
class RowTrial:
    """A row's run with one seed, and its measurements."""

    name: str
    row: GridRow
    evaluation: Translation


def trials_of(
    text: stages.Prepared,
    chosen_rows: Sequence[GridRow],
    seeds: int,
    decoding: DecodingSettings,
    *,
    base_seeds: int = 1,
    dev_scores: bool = False,
) -> list[RowTrial]:
    """Returns trials that train each row with `seeds` seeds and measure its last checkpoint on the dev set (§6.2).

    Seeds are consecutive, beginning with that of the row's settings; base has at least `base_seeds`. A trial decodes
    with as many workers as it trains with, since other trials may run at the same time.
    """
    trials = []
    for row in chosen_rows:
        first, n_seeds = row.training.seed, max(seeds, base_seeds) if row.name == "base" else seeds
        for seed in range(first, first + n_seeds):
            name = f"{row.name} seed {seed}" if n_seeds > 1 else row.name
            settings = row.training.model_copy(update={"seed": seed})
            recipe, search = Recipe(training=settings, averaging=LAST_CHECKPOINT), decoding.beside(settings)
            evaluation = stages.trained(text, name, recipe, search, on_dev=True, with_dev_scores=dev_scores)
            trials.append(RowTrial(name, row, replace(evaluation, model=row.name)))  # the table adds the seed
    return trials


def rows_of(trials: Sequence[RowTrial], failures: Mapping[str, str]) -> list[table3.RowTrainings]:
    """Groups trials with results into the table's rows. A row's failed trials become its reason."""
    by_row: dict[str, list[RowTrial]] = {}
    for trial in trials:
        by_row.setdefault(trial.row.name, []).append(trial)
    rows = []
    for name, row_trials in by_row.items():
        measured = tuple(trial.evaluation for trial in row_trials if trial.name not in failures)
        reasons = [
            failures[trial.name] if len(row_trials) == 1 else f"{trial.name}: {failures[trial.name]}"
            for trial in row_trials
            if trial.name in failures
        ]
        rows.append(table3.RowTrainings(name, row_trials[0].row.difference, measured, "; ".join(reasons)))
    return rows
