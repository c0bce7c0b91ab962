"""Simulates tables of models that do not differ: how often the rules of claims err (docs/protocol.md).

python examples/claims_error_rates.py        # prints the shares in Markdown, in some minutes
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from workflows.claims.claims import CLAIMS, MARGINS, judge
from workflows.claims.seeds import Run, Runs
from workflows.claims.welch import ALPHA

Deviations = Callable[[np.random.Generator, Sequence[str]], Sequence[float]]
"""Draws the standard deviation between seeds of each model of a table."""
MEASURED = {"base": 0.0132, "recurrent": 0.0080, "convolutional": 0.0032, "scaled_128": 0.0275, "additive_4": 0.0468}
MEASURED |= {"additive_128": 0.0148, "dot_product_4": 0.0134, "dot_product_128": 0.0228}
"""In docs/results: of the competitors on 26 November 2026, of the attention functions on 28 November."""
AT_MARGIN = ("E", "dot_product_4")  # said to be like another; they differ from it by the margin


def spread(ratio: float, **named: float) -> Deviations:
    """Returns deviations that differ by up to a ratio, evenly in their logarithms, but for the named ones."""
    return lambda random, models: [
        named.get(model, 0.004 * ratio**share) for model, share in zip(models, random.random(len(models)), strict=True)
    ]


FAMILIES = list(dict.fromkeys(claim.family for claim in CLAIMS))
SCENARIOS = [(family, f"ratios up to {ratio}", spread(ratio)) for family in FAMILIES for ratio in (1, 4, 18)]
SCENARIOS += [(family, "as measured", spread(1, **MEASURED)) for family in FAMILIES[1:]]
SCENARIOS += [("Table 3", f"{model}'s 4 times the others'", spread(1, **{model: 0.016})) for model in ("base", "D1")]


def simulate(family: str, deviations: Deviations, seeds: int, tables: int) -> dict[str, float]:
    """Returns the share of tables with a verdict: on each claim by its own p, and on any after correction."""
    parts = [part for claim in CLAIMS if claim.family == family for part in claim.parts]
    models = list(dict.fromkeys(model for part in parts for model in (*part.models, *part.rivals)))
    means = np.array([[MARGINS["nats"] * (model in AT_MARGIN)] for model in models]).repeat(seeds, axis=0)
    metrics = list(dict.fromkeys(part.metric for claim in CLAIMS for part in claim.parts))
    random, wrong, about = np.random.default_rng(1), Counter[str](), {"pair": "", "data": "", "dtype": "", "updates": 1}
    for _ in range(tables):
        scales = np.repeat(deviations(random, models), seeds)[:, None]
        rows = random.normal(means, scales, (len(means), len(metrics))).tolist()
        runs = [
            Run.model_validate(
                {**about, "model": models[i // seeds], "seed": i, **dict(zip(metrics, row, strict=True))}
            )
            for i, row in enumerate(rows)
        ]
        judged = [each for each in judge(Runs("", "", runs)) if each.p is not None]
        wrong.update(each.claim.text for each in judged if each.p is not None and each.p <= ALPHA)
        wrong["any, after correction"] += any(each.verdict in ("holds", "fails") for each in judged)
    return {error: number / tables for error, number in wrong.items()}


if __name__ == "__main__":
    print("| family | standard deviations | verdict on | 3 seeds | 5 seeds |\n|---|---|---|---|---|")
    for family, name, deviations in SCENARIOS:
        three, five = (simulate(family, deviations, seeds, tables=2000) for seeds in (3, 5))
        for error in dict.fromkeys([*three, *five]):
            print(f"| {family} | {name} | {error} | {three.get(error, 0):.1%} | {five.get(error, 0):.1%} |", flush=True)
