"""Turns the rows of Table 3 (§6.2) into training settings: each row is base with one change.

The paper states its rows in the sizes of its own base. With another base, rows keep their ratios to base: C4 halves
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
    """A row to train."""

    name: str
    difference: dict[str, Any]
    """Changed settings relative to the base trained here, by name."""
    training: TrainingSettings


def rows(grid: Grid, asked: str | None = None) -> list[GridRow]:
    """Returns the rows named in `asked`, e.g. "A,B1,big", the paper's before the user's.

    A letter names a group; None asks for all rows. Raises UserError for an unknown row or group, an unknown setting,
    and a size that would not be a whole number.
    """
    for name in grid.rows.keys() & VARIATIONS.keys():
        raise UserError(f"grid.rows.{name} is a row of Table 3; choose another name for your row")
    rows = []
    for name in chosen([*VARIATIONS, *grid.rows], asked):
        variation = VARIATIONS.get(name)
        difference = grid.rows[name] if variation is None else scaled(variation, grid.training)
        rows.append(GridRow(name, difference, varied(grid.training, name, difference)))
    return rows


def chosen(names: list[str], asked: str | None) -> list[str]:
    """Returns the `names` selected by `asked`, by row or by group, in the order of `names`; None asks for all.

    Raises UserError for an unknown row or group.
    """
    if asked is None:
        return names
    wanted = {name.strip() for name in asked.split(",")}
    available = {choice: None for name in names for choice in (group(name), name)}
    for name in sorted(wanted - available.keys()):
        raise UserError(f"--rows {name}: no such row in Table 3; choose from {', '.join(available)}")
    return [name for name in names if {name, group(name)} & wanted]


def scaled(variation: Variation, training: TrainingSettings) -> dict[str, Any]:
    """Scales a row's difference to a base of other sizes, dropout and updates. Raises UserError if one is not whole."""
    if variation.difference.get("n_heads") == 1:  # one head stays one head, as wide as all of base's together
        model = training.model
        return {"n_heads": 1, "d_k": model.n_heads * model.d_k, "d_v": model.n_heads * model.d_v}
    difference: dict[str, Any] = {}
    for name, value in variation.difference.items():
        if isinstance(value, int):
            ratio, ours = Fraction(value, getattr(BASE, name)), getattr(training.model, name)
            if (ratio * ours).denominator > 1:
                raise UserError(
                    f"row {variation.name} takes {ratio} of base's {SYMBOLS[name]}, but {ours} is not divisible; set "
                    f"grid.training.model.{name} to a multiple of {ratio.denominator}, or leave the row out with --rows"
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
    """Returns training settings with some changed: fields of the model, the optimizer or the settings themselves.

    Raises UserError, which names the `row`, for an unknown field or an invalid value.
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
            raise UserError(f"grid.rows.{row}: a row cannot change {name!r}; choose from {names}")
    try:
        return checked(TrainingSettings, **(described | settings))
    except UserError as error:
        raise UserError(f"row {row}: {error}") from None
