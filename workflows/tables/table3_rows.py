"""Turns the rows of Table 3 into trainings (§6.2): each row is base with one thing changed.

The paper gives its rows in the sizes of its own base. With another base, a row keeps its ratio to base: C4 halves
d_model, d_k and d_v here too, and D2 doubles dropout. Label smoothing and the kind of positions stay as printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from model.config import BASE
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from workflows.paper import SYMBOLS, VARIATIONS, Variation, group
from workflows.profiles.changes import checked
from workflows.profiles.profile import Grid


@dataclass(frozen=True)
class GridRow:
    """A row to be trained."""

    name: str
    difference: dict[str, Any]
    """What differs from the base trained here, by the names of its settings."""
    training: TrainingSettings


def rows(grid: Grid, asked: str | None = None) -> list[GridRow]:
    """Returns the rows named in `asked`, e.g. "A,B1,big", the paper's before the user's own.

    A letter names a group; None asks for all rows. Raises UserError for a name that is neither a row nor a group, a
    setting that does not exist, and a size that would not be a whole number.
    """
    for name in grid.rows.keys() & VARIATIONS.keys():
        raise UserError(f"grid.rows.{name} is a row of Table 3; choose another name for your own")
    rows = []
    for name in chosen([*VARIATIONS, *grid.rows], asked):
        variation = VARIATIONS.get(name)
        difference = grid.rows[name] if variation is None else scaled(variation, grid.training)
        rows.append(GridRow(name, difference, varied(grid.training, name, difference)))
    return rows


def chosen(names: list[str], asked: str | None) -> list[str]:
    """Returns those of `names` that `asked` names, by row or by group, in their own order; None asks for all.

    Raises UserError for a name that is neither a row nor a group.
    """
    if asked is None:
        return names
    wanted = {name.strip() for name in asked.split(",")}
    available = {choice: None for name in names for choice in (group(name), name)}
    for name in sorted(wanted - available.keys()):
        raise UserError(f"--rows {name}: there is no such row in Table 3; choose from {', '.join(available)}")
    return [name for name in names if {name, group(name)} & wanted]


def scaled(variation: Variation, training: TrainingSettings) -> dict[str, Any]:
    """Scales the difference of a row of Table 3 to a base of other sizes and dropout, and its updates where printed.

    Raises UserError where a size would not be a whole number.
    """
    if variation.difference.get("n_heads") == 1:  # one head is one head; it is as wide as all of base's together
        model = training.model
        return {"n_heads": 1, "d_k": model.n_heads * model.d_k, "d_v": model.n_heads * model.d_v}
    difference: dict[str, Any] = {}
    for name, value in variation.difference.items():
        if isinstance(value, int):
            ratio, ours = Fraction(value, getattr(BASE, name)), getattr(training.model, name)
            if (ratio * ours).denominator > 1:
                raise UserError(
                    f"row {variation.name} has {ratio} of base's {SYMBOLS[name]}, which is {ours} here and does not "
                    f"divide; set grid.training.model.{name} to a multiple of {ratio.denominator}, or choose --rows"
                )
            difference[name] = int(ratio * ours)
        elif name == "dropout":
            ratio = Fraction(str(value)) / Fraction(str(BASE.dropout))  # exact: 0.3 / 0.1 is not 3 in floating point
            difference[name] = float(ratio * Fraction(str(training.model.dropout)))
        else:
            difference[name] = value
    base_updates = VARIATIONS["base"].updates
    if variation.updates and base_updates and variation.updates != base_updates:
        difference["updates"] = training.updates * variation.updates // base_updates
    return difference


def varied(training: TrainingSettings, row: str, difference: Mapping[str, Any]) -> TrainingSettings:
    """Returns a training with some settings changed: fields of the model, of the optimizer or of the training itself.

    Raises UserError, which names the `row`, for a name that is none of these and for a value that is not valid.
    """
    described = training.model_dump()
    settings = {name: value for name, value in described.items() if not isinstance(value, dict)}
    groups = [described["model"], described["optimizer"], settings]
    for name, value in difference.items():
        for group_ in groups:
            if name in group_ and name != "vocabulary_size":
                group_[name] = value
                break
        else:
            names = ", ".join(key for group_ in groups for key in group_ if key != "vocabulary_size")
            raise UserError(f"grid.rows.{row}: there is no setting {name!r} that a row can change; choose from {names}")
    try:
        return checked(TrainingSettings, **(described | settings))
    except UserError as error:
        raise UserError(f"row {row}: {error}") from None
