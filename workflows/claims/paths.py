"""The claim that long-range dependencies are easier to learn over short paths (§4), by recall at a distance."""

from collections.abc import Sequence

from pipeline.complexity.recall import RecallRecord
from workflows.claims.claim import Claim, Effect, Finding
from workflows.claims.inference import Groups

COMMAND = "python -m workflows.reproduce_claims --sections 4"


def _easier(recalled: Sequence[RecallRecord]) -> Finding:
    """Judges whether log-likelihood over the longest distance rises from the longest path to the shortest."""
    distance = max(record.distance for record in recalled)
    farthest = sorted((record for record in recalled if record.distance == distance), key=lambda each: -each.path_steps)
    groups = Groups({record.layer_type: [-nll for nll in record.nll] for record in farthest})
    names = [record.layer_type for record in farthest]
    tested = groups.trend(names)
    steps = ", ".join(f"{record.layer_type} {record.path_steps}" for record in farthest)
    behind = (
        Effect.of(f"{name} behind {names[-1]}, {distance} positions", "nats", groups.difference(names[-1], name))
        for name in names[:-1]
    )
    ordered = Effect.of(f"each shorter path, {distance} positions", "nats", tested)
    return Finding.of([tested], [ordered, *behind], f"steps of the path: {steps}")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "4",
        "the shorter the paths between positions, the easier long-range dependencies are learned",
        "paths",
        ("recall",),
        _easier,
        lacks=COMMAND,
    ),
)
