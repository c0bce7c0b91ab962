"""The claim that long-range dependencies are easier to learn over short paths (§4), by recall at a distance."""

from collections.abc import Sequence
from itertools import pairwise

from pipeline.complexity.recall import RecallRecord
from workflows.claims.claim import Claim, Finding
from workflows.claims.inference import Groups

COMMAND = "python -m workflows.reproduce_claims --sections 4"


def _easier(recalled: Sequence[RecallRecord]) -> Finding:
    """Judges whether, at the longest distance, each layer type is ahead of the next one with a longer path."""
    distance = max(record.distance for record in recalled)
    farthest = sorted((record for record in recalled if record.distance == distance), key=lambda each: each.path_steps)
    groups = Groups({record.layer_type: [-nll for nll in record.nll] for record in farthest})
    tested = {
        f"{b.layer_type} behind {a.layer_type}, {distance} positions": groups.difference(a.layer_type, b.layer_type)
        for a, b in pairwise(farthest)
    }
    networks = ", ".join(f"{each.layer_type} {each.path_steps} ({each.parameters:,})" for each in farthest)
    return Finding.all_of("nats", tested, f"steps of the path, and parameters: {networks}")


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
