"""Compares two runs: the settings in which they differ, and their figures side by side.

compared = compare(one.measured, other.measured)
compared.settings, compared.figures
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import UserError
from workflows.runs.names import NEWEST
from workflows.runs.record import ModelRecord, Record, Run

GIVEN = "overrides"
"""A parameter that repeats other settings, as they were given."""


@dataclass(frozen=True)
class Pair:
    """A setting or figure of both runs; None where a run has none."""

    model: str
    """The model it is of; empty if it is of the whole run, or the same for each of the models that both have."""
    name: str
    one: Any
    other: Any


@dataclass(frozen=True)
class Comparison:
    """What differs, and what was measured."""

    settings: tuple[Pair, ...]
    """Settings that differ."""
    origins: tuple[Pair, ...]
    """What differs besides: source, libraries, host."""
    models: tuple[Pair, ...]
    """Models that only one of the runs has."""
    figures: tuple[Pair, ...]
    """The main figures of the tables, then those of the models that both have."""


def compare(one: Record, other: Record) -> Comparison:
    """Compares the records of two runs."""
    ours, theirs = _by_name(one.models), _by_name(other.models)
    common = [name for name in ours if name in theirs]
    lonely = [Pair(name, "model", name in ours or None, name in theirs or None) for name in {**ours, **theirs}]
    figures = [
        Pair("", name, one.figures.get(name), other.figures.get(name)) for name in {**one.figures, **other.figures}
    ]
    for model in common:
        figures += _beside(model, ours[model].figures, theirs[model].figures)
    return Comparison(
        tuple(_settings(one, other, common)),
        tuple(_differing("", _origin(one), _origin(other))),
        tuple(pair for pair in lonely if not (pair.one and pair.other)),
        tuple(figures),
    )


def _settings(one: Record, other: Record, common: Sequence[str]) -> list[Pair]:
    """Returns the settings that differ; what differs in the same way for every model is named once."""
    ours, theirs = _by_name(one.models), _by_name(other.models)
    if not common:
        return list(_differing("", one.settings, other.settings))
    by_name: dict[str, list[Pair]] = {}
    for model in common:
        values = {**one.settings, **ours[model].settings}, {**other.settings, **theirs[model].settings}
        for pair in _differing(model, *values):
            by_name.setdefault(pair.name, []).append(pair)
    found = []
    for name, pairs in by_name.items():
        first = pairs[0]
        same = len(pairs) == len(common) and all((pair.one, pair.other) == (first.one, first.other) for pair in pairs)
        found += [Pair("", name, first.one, first.other)] if same else pairs
    return found


def _differing(model: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterable[Pair]:
    pairs = _beside(model, _without_lone_stages(one, other), _without_lone_stages(other, one))
    return (pair for pair in pairs if pair.one != pair.other and pair.name != GIVEN)


def _without_lone_stages(settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Names a stage that only one run has, such as `dev_bleu`, once instead of each of its settings."""
    stages, found = {name.partition(".")[0] for name in other}, dict[str, Any]()
    for name, value in settings.items():
        stage, is_of_stage, _ = name.partition(".")
        found |= {stage: True} if is_of_stage and stage not in stages else {name: value}
    return found


def _beside(model: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Pair]:
    return [Pair(model, name, one.get(name), other.get(name)) for name in {**one, **other}]


def _by_name(models: Sequence[ModelRecord]) -> dict[str, ModelRecord]:
    return {model.name: model for model in models}


def _origin(record: Record) -> dict[str, str]:
    return {"text": record.data, "source": record.commit[:12], "host": record.host, **record.libraries}


def chosen(runs: Sequence[Run], one: str | None, other: str | None) -> tuple[Run, Run]:
    """Returns the two runs to compare: those named, or else the last two, the older one first.

    With one name it is that run beside the last other one. Raises UserError if there are too few, or none of that name.
    """
    named = [run_named(runs, name) for name in (one, other) if name]
    if len(named) == 2:
        return named[0], named[1]
    others = [run for run in runs if run not in named]
    found = [*others[: 2 - len(named)], *named]
    if len(found) < 2:
        here = "is 1 run" if len(runs) == 1 else f"are {len(runs)} runs"
        raise UserError(f"there {here} here; comparing takes two (`aiayn runs` lists them)")
    older, newer = sorted(found, key=lambda run: run.newest.started)
    return older, newer


def run_named(runs: Sequence[Run], name: str) -> Run:
    """Returns the run of a name, e.g. `table2/embedded/3`, or the newest of `table2/embedded`.

    A name may lack its beginning. Raises UserError if no run has that name.
    """
    wanted = name.strip("/").removesuffix(f"/{NEWEST}")
    for run in runs:
        place = run.name.rpartition("/")[0]
        if any(f"/{known}".endswith(f"/{wanted}") for known in (run.name, place)):
            return run
    raise UserError(f"there is no run {name} here; there are {', '.join(run.name for run in runs) or 'none'}")
