"""The plan of an experiment for other programs: its DAG as JSON, and as a flowchart.

aiayn table2 --plan --json | jq '.steps[] | select(.state == "to run").label'
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.store.store import Store
from workflows.engine.dag import Step, in_order
from workflows.engine.plan import reasons

STYLES = {"not needed": ("opacity:0.4",), "cached": ("stroke-dasharray:4 3",), "to run": ()}


def planned(targets: Sequence[Step[Any]], store: Store, missing: Mapping[Step[Any], str]) -> list[dict[str, Any]]:
    """Describes the steps behind `targets`, inputs first, with those `missing` by `to_run`."""
    why = {step.fingerprint: reason.text for step, reason in reasons(missing, store).items()}
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
    """Returns a flowchart that GitHub draws, without edges that other edges imply."""
    nodes, behind = {step["label"]: f"s{number}" for number, step in enumerate(steps, 1)}, dict[str, set[str]]()
    lines = ["flowchart TD"]
    for step in steps:
        node, inputs = nodes[step["label"]], [nodes[label] for label in step["inputs"]]
        implied = set().union(*(behind[needed] for needed in inputs))
        behind[node] = implied.union(inputs)
        lines.append(f'{node}["{step["label"].replace(chr(34), "#quot;")}"]')
        lines += [f"{' & '.join(needed for needed in inputs if needed not in implied)} --> {node}"] * bool(inputs)
        lines += [f"style {node} {style}" for style in STYLES[step["state"]]]
    return "\n    ".join(lines)
