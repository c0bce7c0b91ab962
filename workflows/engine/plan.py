"""Prints the plan of a command: the steps to run and why.

The plan and the engine both use `to_run`, so they agree on the steps.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import Step, in_order, to_run
from workflows.engine.reasons import NEVER, Reason, reasons

FORCED = Reason("forced")


@dataclass(frozen=True)
class PlannedModel:
    """A model in the plan."""

    results: Sequence[Step[Artifact]]
    about: Mapping[str, str]
    """Details of its training run, by column heading of the plan."""


def steps_of(targets: Sequence[Step[Artifact]], stage: str, option: str) -> list[Step[Artifact]]:
    """Returns the steps behind `targets` of the stage with this name. Raises UserError if there are none."""
    steps = in_order(targets)
    chosen = [step for step in steps if step.stage.short_name == stage]
    if not chosen:
        names = ", ".join(dict.fromkeys(step.stage.short_name for step in steps))
        raise UserError(f"--{option} {stage}: there is no such stage; choose one of {names}")
    return chosen


def resting_on(targets: Sequence[Step[Artifact]], steps: Collection[Step[Artifact]]) -> list[Step[Artifact]]:
    """Returns `steps` and all steps behind `targets` that depend on them, inputs first."""
    chosen = {step.fingerprint for step in steps}
    for step in in_order(targets):
        if any(needed.fingerprint in chosen for needed in step.inputs):
            chosen.add(step.fingerprint)
    return [step for step in in_order(targets) if step.fingerprint in chosen]


def print_plan(
    console: Console,
    targets: Sequence[Step[Artifact]],
    models: Mapping[str, PlannedModel],
    store: Store,
    forced: Collection[Step[Artifact]] = (),
    verbose: bool = False,
) -> None:
    """Prints one line per model, or per stage if `verbose`: the steps to run, and why."""
    missing = to_run(targets, store)
    why = {step.fingerprint: reason for step, reason in reasons(missing, store).items()}
    why |= {step.fingerprint: FORCED for step in forced}
    print_table = _stages if verbose else _models
    console.print(print_table(targets, models, store, why))
    console.print(f"{len(why)} stages to run; store: {store.display_name}", highlight=False, soft_wrap=True)


def _stages(
    targets: Sequence[Step[Artifact]], _models: Mapping[str, PlannedModel], store: Store, why: Mapping[str, Reason]
) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("stage", "", "folder", "why"):
        table.add_column(title, no_wrap=title != "why")
    for step in in_order(targets):
        reason = why.get(step.fingerprint)
        state = "to run" if reason else "cached" if step.is_published(store) else "not needed"
        table.add_row(step.label, state, store.folder(step.name).name, reason.text if reason else "")
    return table


def _models(
    targets: Sequence[Step[Artifact]], models: Mapping[str, PlannedModel], _store: Store, why: Mapping[str, Reason]
) -> Table:
    """Returns a row for the shared steps, one per model, and one for the steps after them."""
    headings = [*dict.fromkeys(heading for model in models.values() for heading in model.about)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "to run", *headings, "why"):
        table.add_column(title, no_wrap=title != "why", justify="right" if title in headings else "left")

    def add(name: str, steps: Iterable[Step[Artifact]], about: Mapping[str, str]) -> None:
        steps = list(steps)
        if steps:
            causes = [reason for step in steps if (reason := why.get(step.fingerprint))]
            table.add_row(
                name, f"{len(causes)} of {len(steps)}", *(about.get(each, "") for each in headings), _summary(causes)
            )

    of_models = in_order([step for model in models.values() for step in model.results])
    shared = {step.fingerprint for step in of_models if not step.is_trained}
    add("shared", (step for step in of_models if step.fingerprint in shared), {})
    for name, model in models.items():
        add(name, (step for step in in_order(model.results) if step.fingerprint not in shared), model.about)
    known = {step.fingerprint for step in of_models}
    add("tables" if models else "stages", (step for step in in_order(targets) if step.fingerprint not in known), {})
    return table


def _summary(causes: Sequence[Reason]) -> str:
    """Returns the first cause that is not a consequence of another, with the number of others."""
    texts = [*dict.fromkeys(reason.text for reason in causes if reason.is_root and reason.text != NEVER)]
    if not texts:
        return NEVER if any(reason.text == NEVER for reason in causes) else "another input" * bool(causes)
    return texts[0] + f" and {len(texts) - 1} more" * (len(texts) > 1)
