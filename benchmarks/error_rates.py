"""Error rates and power of the rules that judge Table 3: wrong verdicts, and true claims that hold.

python -m benchmarks.error_rates --tables 2000

Tables are simulated: a row's metrics are normal over seeds, with a standard deviation of 1.
`workflows.claims.variations` judges them with three and with five seeds per row, uncorrected and corrected for the
family (Holm). For comparison, the earlier rule: three seeds of base, one of the other rows, a limit of two standard
errors, no correction.
"""

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import pairwise
from operator import getitem
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from workflows.claims import variations
from workflows.claims.claim import Finding
from workflows.claims.inference import holm
from workflows.claims.variations import MARGIN_NATS, Rows, Trained
from workflows.cli.console import help_text, run_app
from workflows.paper import VARIATIONS

Values = Mapping[str, NDArray[np.float64]]
"""A row's log-likelihood, BLEU and accuracy, for all of which larger is better: tables x seeds x metrics."""
Verdicts = NDArray[np.int_]
"""1 holds, -1 fails, 0 neither: tables x claims."""
EQUAL = "E = base"
CLAIMS = ("ε_ls 3 metrics", "A1 < best", "A4 < best", "B1 B2 base", "C 3 trends", "D1 < base", EQUAL)
"""`variations.CLAIMS` without the negative control."""
STEPS = {"A1": -1, "A4": -1, "B1": -2, "B2": -1, "C1": -2, "C2": -1, "C3": 1, "C4": -1, "C5": 1, "C6": -1, "C7": 1}
STEPS |= {"D1": -1}
"""Rows' means if all claims are true, in steps."""
SMOOTHING = np.array([1, -1, -1])
"""The means of D3: better than base in log-likelihood, worse in BLEU and accuracy."""
EFFECTS = (0, 1, 2, 3)
"""Sizes of a step, in standard deviations between seeds. E's margin is a step, or 1 if that is 0."""
OLD = "old rule"
SIGNS = {"holds": 1, "fails": -1, "undecided": 0}


def rows_of(values: Values, table: int, margin: float) -> Rows:
    """Returns the rows of a simulated table, scaled so that `margin` standard deviations are E's margin."""
    nats = MARGIN_NATS / margin
    return {
        name: [Trained(-nats * likelihood, bleu, accuracy) for likelihood, bleu, accuracy in seeds[table].tolist()]
        for name, seeds in values.items()
    }


def family(rows: Rows) -> list[Finding]:
    """Judges the claims on Table 3, in the order of CLAIMS."""
    judges = [claim.judge for claim in variations.CLAIMS if claim.family == variations.FAMILY]
    return [found for judge in judges if judge and (found := judge(rows))]


def verdicts(values: Values, margin: float) -> tuple[Verdicts, Verdicts]:
    """Returns the verdicts on each claim, uncorrected and corrected for the family; `margin` is E's."""
    alone, adjusted = [], []
    for table in range(len(values["base"])):
        found = family(rows_of(values, table, margin))
        alone.append([SIGNS[each.verdict(each.p)] for each in found])
        p = holm([each.p for each in found])
        adjusted.append([SIGNS[each.verdict(its)] for each, its in zip(found, p, strict=True)])
    return np.array(alone), np.array(adjusted)


def old_verdicts(values: Values) -> Verdicts:
    """Returns the verdicts of the earlier rule on three seeds of base and the first seed of the other rows.

    A difference counts beyond 2 s √(1/n + 1/m), where s is base's. A claim fails if any step counts downwards, and
    holds if all count upwards. Rows whose difference does not count are equal.
    """
    seeds = {name: 3 if name == "base" else 1 for name in values}
    means = {name: values[name][:, :n].mean(1) for name, n in seeds.items()}
    deviation = values["base"][:, :3].std(1, ddof=1)

    def signs(worse: str, better: str) -> NDArray[np.float64]:
        """Returns the sign of each metric's difference, 0 if it does not count: tables x metrics."""
        gain = means[better] - means[worse]
        return np.sign(gain) * (np.abs(gain) > 2 * deviation * np.sqrt(1 / seeds[worse] + 1 / seeds[better]))

    def chains(*chains: str) -> NDArray[np.float64]:
        steps = [signs(*step)[:, 0] for chain in chains for step in pairwise(chain.split())]
        return np.min(steps, 0)

    claims = [
        (signs("base", "D3") * SMOOTHING).min(1),
        chains("A1 base"),
        chains("A4 base"),
        chains("B1 B2 base"),
        chains("C1 C2 base C3", "C4 base C5", "C6 base C7"),
        chains("D1 base"),
        1 - 2 * np.abs(signs("E", "base")[:, 0]),
    ]
    return np.stack(claims, 1).astype(int)


def simulated(effect: float, tables: int, seeds: int, random: np.random.Generator) -> Values:
    """Draws tables in which every claim is true by `effect` per step; at 0, no rows differ."""
    steps = {name: np.full(3, STEPS.get(name, 0)) for name in VARIATIONS} | {"D3": SMOOTHING}
    return {name: random.normal(effect * of_row, 1, (tables, seeds, 3)) for name, of_row in steps.items()}


def measure(tables: int) -> dict[str, Any]:
    """Returns the fractions of tables in which claims hold, fail and are judged wrongly, by rule and effect."""
    random = np.random.default_rng(0)
    rules: dict[str, dict[str, Any]] = {}
    for effect in EFFECTS:
        values = simulated(effect, tables, 5, random)
        found_by = {OLD: old_verdicts(values)}
        for n in (3, 5):
            alone, adjusted = verdicts({name: seeds[:, :n] for name, seeds in values.items()}, max(effect, 1))
            found_by |= {f"{n} seeds": alone, f"{n} seeds, Holm": adjusted}
        for rule, found in found_by.items():
            holds, fails = found == 1, found == -1
            wrong = fails | holds & (np.array(CLAIMS) != EQUAL) & (effect == 0)
            rules.setdefault(rule, {})[f"{effect} sd"] = {
                "any_wrong": float(wrong.any(1).mean()),
                "wrong_a_table": float(wrong.sum(1).mean()),
                "hold_a_table": float(holds.sum(1).mean()),
                "holds": dict(zip(CLAIMS, holds.mean(0).tolist(), strict=True)),
                "fails": dict(zip(CLAIMS, fails.mean(0).tolist(), strict=True)),
            }
    return {"tables": tables, "rules": rules}


def as_markdown(result: Mapping[str, Any]) -> str:
    """Formats the result of `measure`: errors if no rows differ, then the claims that hold if all are true."""
    rules = result["rules"]

    def line(name: str, cells: Iterable[str]) -> str:
        return f"| {name} | {' | '.join(cells)} |"

    def row(name: str, effects: Iterable[int], *keys: str) -> str:
        sizes = [f"{effect} sd" for effect in effects]
        shares = ([f"{reduce(getitem, keys, found[size]):.3f}" for size in sizes] for found in rules.values())
        return line(name, map(" / ".join, shares))

    none, *true = EFFECTS
    return "\n".join(
        [
            line(f"no row differs ({result['tables']:,} tables)", rules),
            line("---", ["---"] * len(rules)),
            row("any wrong verdict", [none], "any_wrong"),
            row("wrong verdicts per table", [none], "wrong_a_table"),
            *(row(f"{claim}: fails", [none], "fails", claim) for claim in CLAIMS),
            line("**every claim true by 1 / 2 / 3 sd**", [""] * len(rules)),
            row("any wrong verdict", true, "any_wrong"),
            row(f"claims that hold, of {len(CLAIMS)}", true, "hold_a_table"),
            *(row(f"{claim}: holds", true, "holds", claim) for claim in CLAIMS),
        ]
    )


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    tables: Annotated[int, typer.Option(min=1, help="Simulated tables per effect size.")] = 2_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object on one line.")] = False,
) -> None:
    """Simulate the error rates and the power of the rules that judge Table 3."""
    result = measure(tables)
    typer.echo(json.dumps(result) if as_json else as_markdown(result))


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.error_rates")
