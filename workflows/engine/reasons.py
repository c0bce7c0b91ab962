"""Why steps must run: differences from the nearest artifact of the same stage with a manifest on this machine.

why = reasons(to_run([table], store), store)     # {step: Reason("built with updates 30 (here 40)"), ...}
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.store import Store
from workflows.engine.dag import Step, inputs_of, labels_of

NEVER, INPUT = "never built", "another "
MAX_CHANGES = 6  # with more changed settings, an artifact is another experiment's and explains nothing


@dataclass(frozen=True)
class Reason:
    """Why a step must run."""

    text: str
    """E.g. `built with updates 30 (here 40)`."""
    is_root: bool = True
    """Whether it is a cause rather than a consequence of another step that must run."""


def reasons(missing: Mapping[Step[Artifact], str], store: Store) -> dict[Step[Artifact], Reason]:
    """Returns the reasons why the steps returned by `to_run` must run."""
    built: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for manifest in _manifests(store) if missing else ():
        built.setdefault((manifest["stage"], manifest["label"]), []).append(manifest)
    fingerprints = {step.fingerprint for step in missing}
    return {
        step: Reason(f"damaged: {damage}")
        if damage
        else _reason(step, built.get((step.stage.name, step.label), []), fingerprints)
        for step, damage in missing.items()
    }


def grouped(why: Mapping[Step[Artifact], Reason]) -> list[str]:
    """Returns one line per cause of reruns, with the steps it affects."""
    labels: dict[str, list[str]] = {}
    for step, reason in why.items():
        if reason.is_root and reason.text != NEVER:
            labels.setdefault(reason.text, []).append(step.label)
    return [
        f"{first}{f' and {len(others)} more' if others else ''} again: {text}"
        for text, (first, *others) in labels.items()
    ]


def _manifests(store: Store) -> Iterator[Mapping[str, Any]]:
    for path in store.artifacts.glob(f"[!.]*/{MANIFEST}"):
        # Being removed, broken or of another version: not worth an error.
        with suppress(OSError, ValueError, TypeError, LookupError):
            manifest = json.loads(path.read_bytes())
            known = {name: manifest[name] for name in ("stage", "label", "version")} | {"ns": path.stat().st_mtime_ns}
            yield {**manifest, **known, "inputs": dict(zip(labels_of(manifest), inputs_of(manifest), strict=True))}


def _reason(step: Step[Artifact], built: Iterable[Mapping[str, Any]], missing: set[str]) -> Reason:
    """Compares a step with the most similar artifact of its label."""
    near = (manifest for manifest in built if len(list(step.differing(manifest))) <= MAX_CHANGES)
    newest_first = sorted(near, key=lambda manifest: -manifest["ns"])
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
