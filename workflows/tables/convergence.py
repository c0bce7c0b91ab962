"""Whether a run was still improving when it ended, by its learning curve."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

LAST_PART = 0.1
"""The last fraction of the updates, over which the fall of dev perplexity is computed."""
MAX_FALL = 0.05
"""A run whose dev perplexity falls by more than this fraction over the last part has not converged."""


def last_fall(metrics: Sequence[Mapping[str, Any]], updates: int) -> float | None:
    """Returns the fraction by which dev perplexity fell over the last tenth of the updates; negative if it rose.

    `metrics` are the lines of `metrics.jsonl`. If dev perplexity was not measured exactly at nine tenths of the
    updates, its logarithm is interpolated between the neighbouring measurements, which overestimates the fall of a
    flattening curve. Returns None if nothing was measured by then.
    """
    curve = [(line["update"], math.log(line["dev_perplexity"])) for line in metrics if "dev_perplexity" in line]
    start = (1 - LAST_PART) * updates
    for (update, before), (next_update, after) in pairwise(curve):
        if update <= start < next_update:
            at_start = before + (after - before) * (start - update) / (next_update - update)
            return -math.expm1(curve[-1][1] - at_start)
    return None
