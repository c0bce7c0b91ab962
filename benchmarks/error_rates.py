"""Error rates of the rules that judge Table 3: how often a verdict is wrong, and how often a true claim holds.

python -m benchmarks.error_rates --tables 2000

Tables are simulated: every row's seeds are normal around its mean, with a standard deviation of 1. The earlier rule
(base with three seeds, other rows with one, a limit of two standard errors, no correction for the number of claims) is
beside `workflows.claims.inference` with three and with five seeds a row.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import getitem
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from workflows.claims.inference import Estimate, Groups, holm, within
from workflows.cli.console import help_text, run_app
from workflows.paper import VARIATIONS

Values = Mapping[str, NDArray[np.float64]]
"""A row's metric, larger where better: tables x seeds."""
Verdicts = NDArray[np.int_]
"""1 holds, -1 fails, 0 neither: tables x claims."""
CHAINS = ("A1 base", "A4 base", "B1 B2 base", "C1 C2 base C3", "C4 base C5", "C6 base C7", "D1 base", "D3 base")
EQUAL = "E = base"
CLAIMS = (*CHAINS, EQUAL, "big best")
STEPS = {"A1": -1, "A4": -1, "B1": -2, "B2": -1, "C1": -2, "C2": -1, "C3": 1, "C4": -1, "C5": 1, "C6": -1, "C7": 1}
STEPS |= {"D1": -1, "D3": -1, "big": 2}
"""Rows' means where all claims are true, in steps: those of a chain are one apart, and big is one ahead of the next."""
EFFECTS = (0, 1, 2, 3)
"""Sizes of a step, in standard deviations between seeds. E is as good as base within a step, or 1 where that is 0."""
OLD = "old rule"


def family(rows: Groups, margin: float) -> list[Estimate]:
    """Tests Table 3's ten claims, in the order of CLAIMS; `margin` is that within which E is as good as base."""
    return [
        *(rows.behind_best(name, sorted({"base", "A1", "A2", "A3", "A4"} - {name})) for name in ("A1", "A4")),
        *(rows.trend(chain.split()) for chain in CHAINS[2:]),
        rows.difference("E", "base", within(margin)),
        rows.best("big", sorted(rows.values.keys() - {"big"})),
    ]


def verdicts(values: Values, margin: float) -> tuple[Verdicts, Verdicts]:
    """Returns the verdicts of the inference layer, each claim by itself and adjusted for the family of ten."""
    signs = {"holds": 1, "fails": -1, "undecided": 0}
    alone, adjusted = [], []
    for table in range(len(values["base"])):
        tested = family(Groups({name: seeds[table].tolist() for name, seeds in values.items()}), margin)
        alone.append([signs[each.verdict()] for each in tested])
        p = holm([each.p for each in tested])
        adjusted.append([signs[each.verdict(its)] for each, its in zip(tested, p, strict=True)])
    return np.array(alone), np.array(adjusted)


def old_verdicts(values: Values) -> Verdicts:
    """Returns the verdicts of the earlier rule on three seeds of base and the first seed of the other rows.

    A difference counts beyond 2 s √(1/n + 1/m), s that of base. A chain fails where any step does so downwards, and
    holds where all do upwards; equal is whatever does not differ.
    """
    seeds = {name: 3 if name == "base" else 1 for name in values}
    means = {name: values[name][:, :n].mean(1) for name, n in seeds.items()}
    deviation = values["base"][:, :3].std(1, ddof=1)

    def judged(pairs: Sequence[tuple[str, str]]) -> Verdicts:
        steps = []
        for worse, better in pairs:
            gain = means[better] - means[worse]
            limit = 2 * deviation * np.sqrt(1 / seeds[worse] + 1 / seeds[better])
            steps.append(np.sign(gain) * (np.abs(gain) > limit))
        return np.min(steps, 0).astype(int)

    chains = [judged([*pairwise(chain.split())]) for chain in CHAINS]
    equal = 1 - 2 * np.abs(judged([("E", "base")]))
    best = judged([(name, "big") for name in values if name != "big"])
    return np.stack([*chains, equal, best], 1)


def simulated(effect: float, tables: int, seeds: int, random: np.random.Generator) -> Values:
    """Draws tables in which every claim is true by `effect` a step; at 0, no row differs from another."""
    return {name: random.normal(effect * STEPS.get(name, 0), 1, (tables, seeds)) for name in VARIATIONS}


def measure(tables: int) -> dict[str, Any]:
    """Returns the shares of tables in which claims hold, fail and are judged wrongly, for each rule and effect."""
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
    """Formats what `measure` returns: errors where no row differs, then what holds where every claim is true."""
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
            row("wrong verdicts a table", [none], "wrong_a_table"),
            *(row(f"{claim}: fails", [none], "fails", claim) for claim in CLAIMS),
            line("**every claim true by 1 / 2 / 3 sd**", [""] * len(rules)),
            row("any wrong verdict", true, "any_wrong"),
            row("claims that hold, of 10", true, "hold_a_table"),
            *(row(f"{claim}: holds", true, "holds", claim) for claim in CLAIMS),
        ]
    )


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    tables: Annotated[int, typer.Option(min=1, help="Simulated tables for each size of the effects.")] = 2_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object on one line.")] = False,
) -> None:
    """Simulates how often the rules that judge Table 3 are wrong, and how often a true claim holds."""
    result = measure(tables)
    typer.echo(json.dumps(result) if as_json else as_markdown(result))


if __name__ == "__main__":
    run_app(app, "python -m benchmarks.error_rates")
