"""Reads `seeds.csv`, which Tables 2 and 3 write: one row a trained model, with what it was trained on and its metrics.

runs = read([Path("runs/table3/multi30k/seeds.csv")])
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from workflows.profiles.profile import GENERATED

CONDITIONS = ("dtype", "updates")
"""What compared runs must share, beside their text."""


@dataclass(frozen=True)
class Run:
    """A trained model."""

    model: str
    """The row of Table 3, or the model of Table 2."""
    seed: int
    conditions: Mapping[str, str]
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Runs:
    """The runs of one text."""

    data: str
    pair: str
    runs: Sequence[Run]

    def of(self, model: str) -> list[Run]:
        """Returns a model's runs, by seed."""
        return sorted((run for run in self.runs if run.model == model), key=lambda run: run.seed)


def read(paths: Sequence[Path]) -> Runs:
    """Reads files with runs of one text.

    Raises UserError for a file that is not a table's seeds.csv, a run that stands twice, text that differs between
    rows, and generated text, on which no claim is judged.
    """
    found: dict[tuple[str, int], Run] = {}
    text: tuple[str, str] | None = None
    for path in paths:
        for place, row in _rows(path):
            if row["data"].startswith(GENERATED):
                raise UserError(
                    f"{path} is of {row['data']}, which cannot answer what the paper claims; use real text, e.g. "
                    "aiayn table3 --profile multi30k --seeds 3"
                )
            run, text_here = _run(row, place), (row["data"], row["pair"])
            text = text or text_here
            if text_here != text:
                raise UserError(
                    f"{place} is on {' '.join(text_here)}, the runs before it on {' '.join(text)}; judge each text by "
                    "a command of its own (Table 2: --pairs)"
                )
            if (key := (run.model, run.seed)) in found:
                raise UserError(f"{place}: {run.model} with seed {run.seed} stands in these files twice; name it once")
            found[key] = run
    assert text, "each file has a run"
    return Runs(*text, [*found.values()])


def _rows(path: Path) -> list[tuple[str, dict[str, str]]]:
    remedy = "name a seeds.csv that Table 2 or 3 has written"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, restval="")
            lines, names = [(reader.line_num, row) for row in reader], reader.fieldnames or ()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {remedy}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not CSV ({error}); {remedy}") from None
    if missing := {"model", "pair", "seed", "data", *CONDITIONS} - set(names):
        raise UserError(f"{path} has no column {', '.join(sorted(missing))}; {remedy}")
    if not lines:
        raise UserError(f"{path} has no runs; {remedy}")
    return [(f"{path}, line {number}", {str(name): str(text) for name, text in row.items()}) for number, row in lines]


def _run(row: Mapping[str, str], place: str) -> Run:
    metrics = {}
    for name, text in row.items():
        if name in ("model", "pair", "data", *CONDITIONS) or not text:
            continue
        try:
            metrics[name] = float(text)
        except (TypeError, ValueError):
            raise UserError(f"{place}: {name} is {text!r}, not a number; write the file anew by its table") from None
        if not math.isfinite(metrics[name]):
            raise UserError(f"{place}: {name} is {text}; that run has failed, so remove its line or train it again")
    if "seed" not in metrics:
        raise UserError(f"{place}: no seed; write the file anew by its table")
    return Run(row["model"], int(metrics.pop("seed")), {name: row[name] for name in CONDITIONS}, metrics)
