"""Reads `seeds.csv`, which Tables 2 and 3 write: one row a trained model, with what it was trained on and its metrics.

runs = read([Path("runs/table3/multi30k/seeds.csv")])
"""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from pipeline.errors import UserError
from workflows.profiles.profile import GENERATED

CONDITIONS = ("dtype", "training_version", "dataset", "budget_tokens", "vocabulary", "averaged", "updates")
"""What compared runs must share, beside their text."""


class Run(BaseModel):
    """A trained model. Columns without a field here are its metrics."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, FiniteFloat]
    model: str
    """The row of Table 3, or the model of Table 2."""
    pair: str
    seed: int
    data: str
    dtype: str
    updates: int
    training_version: int | None = None
    """Like the next ones, unknown in files of before 29 November 2026."""
    dataset: str | None = None
    budget_tokens: int | None = None
    vocabulary: int | None = None
    averaged: int | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics by name; those of the row that are empty are left out."""
        return self.__pydantic_extra__


@dataclass(frozen=True)
class Runs:
    """The runs of one text."""

    data: str
    pair: str
    runs: Sequence[Run]

    def of(self, model: str) -> list[Run]:
        """Returns a model's runs, by seed."""
        return sorted((run for run in self.runs if run.model == model), key=lambda run: run.seed)


ROWS = TypeAdapter(Annotated[list[Run], Field(min_length=1)])


def read(paths: Sequence[Path]) -> Runs:
    """Reads files with runs of one text.

    Raises UserError for a file that is not a table's seeds.csv, a run that stands twice, several texts, and generated
    text, on which no claim is judged.
    """
    runs = [run for path in paths for run in _runs(path)]
    text, *others = dict.fromkeys((run.data, run.pair) for run in runs)
    if text[0].startswith(GENERATED):
        raise UserError(
            f"{paths[0]} is of {text[0]}, which cannot answer what the paper claims; use real text, e.g. "
            "aiayn table3 --profile multi30k --seeds 3"
        )
    if others:
        listed = " and ".join(map(" ".join, (text, *others)))
        raise UserError(f"these runs are on {listed}; judge each text by a command of its own (Table 2: --pairs)")
    (model, seed), times = Counter((run.model, run.seed) for run in runs).most_common(1)[0]
    if times > 1:
        raise UserError(f"{model} with seed {seed} stands in these files {times} times; name each run once")
    return Runs(*text, runs)


def _runs(path: Path) -> list[Run]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, restkey="a column without a heading")
            return ROWS.validate_python([{name: text for name, text in row.items() if text} for row in rows])
    except ValidationError as error:
        first = error.errors()[0]
        line, column = (f", line {int(first['loc'][0]) + 2}", f"{first['loc'][1]}: ") if first["loc"] else ("", "")
        problem = f"{path}{line}: {column}{first['msg']}"
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        problem = f"{path} cannot be read ({getattr(error, 'strerror', None) or error})"
    raise UserError(f"{problem}; name a seeds.csv that Table 2 or 3 has written")
