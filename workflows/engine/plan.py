"""What must run and why, for the engine and for `--plan`, so that both agree.

    missing = to_run([table], store)                 # {step: "damaged: words.txt is missing", ...}
    why = reasons(missing, store)                    # {step: Reason("built with updates 30 (here 40)"), ...}

A step's reason is its damage, another generation of an input, the update at which an interrupted run continues, or how
it differs from the nearest artifact of the same stage and label that earlier runs of its table have built.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.bucket import AT_ONCE
from pipeline.store.store import Store
from workflows.engine.dag import Step, in_order, inputs_now, outdated

PlannedModels: TypeAlias = Mapping[str, tuple[Sequence[Step[Artifact]], Mapping[str, str]]]
"""The final steps of models, and details of their training runs by column heading of the plan, by name."""
NEVER, FORCED, INPUT, CONTINUES = "never built", "forced", "another ", "continues at update "
STYLES = {"not needed": "opacity:0.4", "cached": "stroke-dasharray:4 3"}


@dataclass(frozen=True)
class Reason:
    """Why a step must run."""

    text: str
    """E.g. `built with updates 30 (here 40)`."""
    is_root: bool = True
    """Whether it is a cause rather than a consequence of another step that must run."""


def steps_of(targets: Sequence[Step[Artifact]], stage: str, option: str) -> list[Step[Artifact]]:
    """Returns the steps behind `targets` of a stage, or with these words in their labels. Raises UserError if none."""
    steps = in_order(targets)
    of_stage = [step for step in steps if step.stage.short_name == stage]
    if chosen := of_stage or [step for step in steps if f" {stage} " in f" {step.label} "]:
        return chosen
    names = ", ".join(dict.fromkeys(step.label.partition(" ")[0] for step in steps))
    raise UserError(f"--{option} {stage}: there is no such stage; choose one of {names}, or a stage's full name")


def to_run(
    targets: Sequence[Step[Artifact]], store: Store, forced: Iterable[Step[Artifact]] = ()
) -> dict[Step[Artifact], str]:
    """Returns the steps that must run to build `targets`, inputs first, with the cause of each, empty if missing.

    A published artifact needs no inputs. It is rebuilt if it is damaged, `forced`, or was built from other content than
    an input has now, and all that depends on it is rebuilt in the last two cases. So is all that depends on a rebuilt
    run, whose weights may differ. Rebuilt text is the same; whether it is, is checked when it is there.

    Raises UserError if a folder that a single stage reads or writes is damaged or outdated.
    """
    steps, causes = in_order(targets), dict[str, str | None]()
    rebuilt = {step.fingerprint: FORCED for step in forced}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        names = [step.name for step in steps]
        manifests = dict(zip(names, threads.map(store.manifest, names), strict=True))
    for step in steps:
        if label := outdated(manifests[step.name] or {}, inputs_now(step, manifests.get)):
            rebuilt[step.fingerprint] = f"built from another generation of {label}"
            if step.out:
                stale = f"{step.out} was {rebuilt[step.fingerprint]}"
                raise UserError(f"{stale}; move it elsewhere or choose another folder")

    def must_run(step: Step[Artifact]) -> bool:
        if step.fingerprint not in causes:
            step.check_artifacts()
            damage = step.damage(store) if store.find(step.name) else ""
            causes[step.fingerprint] = f"damaged: {damage}" if damage else damage
        return causes[step.fingerprint] is not None or step.fingerprint in rebuilt

    n_rebuilt = -1
    while n_rebuilt < len(rebuilt):
        n_rebuilt, missing = len(rebuilt), in_order(targets, must_run)
        changed = {step.fingerprint for step in missing if step.is_trained} | rebuilt.keys()
        for step in steps:
            if label := next((needed.label for needed in step.inputs if needed.fingerprint in changed), ""):
                changed.add(step.fingerprint)
                rebuilt.setdefault(step.fingerprint, INPUT + label)
    found = {step: causes[step.fingerprint] for step in missing}
    return {step: rebuilt.get(step.fingerprint, "") if cause is None else cause for step, cause in found.items()}


def reasons(
    missing: Mapping[Step[Artifact], str], store: Store, earlier: Collection[str] | None = None
) -> dict[Step[Artifact], Reason]:
    """Returns the reasons why the steps returned by `to_run` must run.

    They are compared with the artifacts named in `earlier`, by default with all: another profile's explain nothing.
    """
    built: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in store.artifacts.glob(f"[!.]*/{MANIFEST}") if missing else ():
        # Being removed, broken or of another version: not worth an error.
        with suppress(OSError, ValueError, TypeError, LookupError):
            if earlier is not None and path.parent.name not in earlier:
                continue
            manifest = {"version": None, **json.loads(path.read_bytes()), "ns": path.stat().st_mtime_ns}
            manifest["inputs"] = {each["label"]: each["fingerprint"] for each in manifest.get("inputs", [])}
            built.setdefault((manifest["stage"], manifest["label"]), []).append(manifest)
    fingerprints = {step.fingerprint for step in missing}
    return {
        step: Reason(cause, is_root=not cause.startswith(INPUT))
        if cause
        else Reason(f"{CONTINUES}{reached:,}")
        if (reached := update_of(step.name, store))
        else _reason(step, built.get((step.stage.name, step.label), []), fingerprints)
        for step, cause in missing.items()
    }


def grouped(why: Mapping[Step[Artifact], Reason]) -> list[str]:
    """Returns one line per cause of reruns, with the steps it affects."""
    labels: dict[str, list[str]] = {}
    for step, reason in why.items():
        if reason.is_root and reason.text != NEVER:
            labels.setdefault(reason.text, []).append(step.label)
    return [
        f"{first}{f' and {len(others)} more' if others else ''} {text if CONTINUES in text else f'again: {text}'}"
        for text, (first, *others) in labels.items()
    ]


def update_of(name: str, store: Store) -> int:
    """Returns the update of an unfinished run's newest checkpoint on this machine, or 0."""
    checkpoints = store.scratch(name).glob("recovery/[0-9]*")
    return max((int(checkpoint.name) for checkpoint in checkpoints if checkpoint.name.isdecimal()), default=0)


def _reason(step: Step[Artifact], built: Iterable[Mapping[str, Any]], missing: set[str]) -> Reason:
    """Compares a step with the most similar artifact of its label."""
    newest_first = sorted(built, key=lambda manifest: -manifest["ns"])
    differences = min((list(_differences(step, manifest)) for manifest in newest_first), key=len, default=None)
    if differences is None:
        return Reason(NEVER)
    others = [text for text in differences if not text.startswith(INPUT)]
    if others:
        return Reason("; ".join(others))
    if differences:
        inputs = {needed.label: needed.fingerprint for needed in step.inputs}
        changed = [text.removeprefix(INPUT) for text in differences]
        more = f" and {len(changed) - 1} more" * (len(changed) > 1)
        return Reason(f"{differences[0]}{more}", is_root=not any(inputs[label] in missing for label in changed))
    return Reason("the source has changed" if step.stage.follows_source else "built with other arguments")


def _differences(step: Step[Artifact], manifest: Mapping[str, Any]) -> Iterator[str]:
    if manifest["version"] != step.stage.version:
        yield f"built by version {manifest['version']} of {step.stage.name} (here {step.stage.version})"
    if differing := ", ".join(step.differing(manifest)):
        yield f"built with {differing}"
    for needed in step.inputs:
        if needed.fingerprint != manifest["inputs"].get(needed.label):
            yield f"{INPUT}{needed.label}"


def planned(targets: Sequence[Step[Any]], store: Store, found: Mapping[Step[Artifact], Reason]) -> list[dict[str, Any]]:
    """Describes the steps behind `targets`, inputs first, with those that must run (`reasons`), as JSON values."""
    why = {step.fingerprint: reason.text for step, reason in found.items()}
    return [
        {
            "label": step.label,
            "stage": step.stage.name,
            "fingerprint": step.fingerprint,
            "why": (cause := why.get(step.fingerprint, "")),
            "state": "to run" if cause else "cached" if step.is_published(store) else "not needed",
            "inputs": [needed.label for needed in step.inputs],
        }
        for step in in_order(targets)
    ]


def as_mermaid(steps: Sequence[Mapping[str, Any]]) -> str:
    """Returns a flowchart of `planned` steps that GitHub draws, without edges that other edges imply."""
    nodes, behind = {step["label"]: f"s{number}" for number, step in enumerate(steps, 1)}, dict[str, set[str]]()
    lines = ["flowchart TD"]
    for step in steps:
        node, inputs = nodes[step["label"]], [nodes[label] for label in step["inputs"]]
        implied = set().union(*(behind[needed] for needed in inputs))
        behind[node] = implied.union(inputs)
        lines.append(f'{node}["{step["label"].replace(chr(34), "#quot;")}"]')
        lines += [f"{' & '.join(needed for needed in inputs if needed not in implied)} --> {node}"] * bool(inputs)
        if style := STYLES.get(step["state"]):
            lines.append(f"style {node} {style}")
    return "\n    ".join(lines)


def print_plan(
    console: Console,
    targets: Sequence[Step[Artifact]],
    models: PlannedModels,
    store: Store,
    found: Mapping[Step[Artifact], Reason],
    verbose: bool = False,
) -> None:
    """Prints one line per model, or per stage if `verbose`: the steps to run, and why (`reasons`)."""
    console.print(_stages(targets, store, found) if verbose else _models(targets, models, found))
    stages = f"{len(found)} stage{'s' * (len(found) != 1)}"
    console.print(f"{stages} to run; store: {store}", highlight=False, soft_wrap=True)


def _stages(targets: Sequence[Step[Artifact]], store: Store, found: Mapping[Step[Artifact], Reason]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("stage", "", "folder", "why"):
        table.add_column(title, no_wrap=title != "why")
    for step, about in zip(in_order(targets), planned(targets, store, found), strict=True):
        table.add_row(step.label, about["state"], store.folder(step.name).name, about["why"])
    return table


def _models(targets: Sequence[Step[Artifact]], models: PlannedModels, found: Mapping[Step[Artifact], Reason]) -> Table:
    """Returns a row for the shared steps, one per model, and one for the steps after them."""
    why = {step.fingerprint: reason for step, reason in found.items()}
    headings = [*dict.fromkeys(heading for _, about in models.values() for heading in about)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "to run", *headings, "why"):
        table.add_column(title, no_wrap=title != "why", justify="right" if title in headings else "left")

    def add(name: str, steps: Iterable[Step[Artifact]], about: Mapping[str, str]) -> None:
        steps = list(steps)
        if steps:
            causes = [reason for step in steps if (reason := why.get(step.fingerprint))]
            facts = (about.get(each, "") for each in headings)
            table.add_row(name, f"{len(causes)} of {len(steps)}", *facts, _summary(causes))

    of_models = in_order([step for results, _ in models.values() for step in results])
    shared = {step.fingerprint for step in of_models if not step.is_trained}
    add("shared", (step for step in of_models if step.fingerprint in shared), {})
    for name, (results, about) in models.items():
        add(name, (step for step in in_order(results) if step.fingerprint not in shared), about)
    known = {step.fingerprint for step in of_models}
    add("tables" if models else "stages", (step for step in in_order(targets) if step.fingerprint not in known), {})
    return table


def _summary(causes: Sequence[Reason]) -> str:
    """Returns the first cause that is not a consequence of another, with the number of others."""
    texts = [*dict.fromkeys(reason.text for reason in causes if reason.is_root and reason.text != NEVER)]
    if not texts:
        return NEVER if any(reason.text == NEVER for reason in causes) else "another input" * bool(causes)
    return texts[0] + f" and {len(texts) - 1} more" * (len(texts) > 1)
