"""`aiayn claims`: judges the paper's claims in words by the runs of a table's seeds.csv."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import HORIZONTALS
from rich.table import Column, Table
from rich.text import Text

from workflows.claims.claims import UNITS, Judged, Part, judge
from workflows.claims.inference import Estimate
from workflows.claims.seeds import read
from workflows.cli.console import console

DECIMALS = {"nats": 3, "accuracy": 3, "BLEU": 2}
HEADINGS = ("section", "claim", "effect [95%]", "n", "verdict")
EXPLANATION = (
    "A claim holds if the 95% interval of its effect lies wholly where the claim says, fails if wholly elsewhere, and "
    "is undecided otherwise. Positive means better. Each model has its own variance (Welch). p is corrected for all "
    "claims of the family, run or not (Holm): at most 5% of families of three seeds a row then have a wrong verdict in "
    "simulations. The rules are in docs/protocol.md."
)


def claims(
    seeds: Annotated[list[Path], typer.Argument(help="seeds.csv of Table 2 or 3; several count as one.")],
) -> None:
    """Judge the paper's claims by the seeds of Tables 2 and 3. docs/protocol.md has the rules."""
    runs = read(seeds)
    judged = judge(runs)
    columns = (Column(heading, overflow="fold") for heading in HEADINGS)
    table = Table(*columns, box=HORIZONTALS, show_edge=False, pad_edge=False, border_style="dim")
    for row in cells(judged):
        table.add_row(*row)
    counts = Counter(each.verdict for each in judged)
    hold, fail, undecided = (counts.pop(verdict, 0) for verdict in ("holds", "fails", "undecided"))
    title = f"The paper's claims, by {len(runs.runs)} runs on {runs.data}, {runs.pair.upper()}"
    console.print(Text(title, style="bold"), table, Text(EXPLANATION, style="dim"), sep="\n")
    said = f"{hold} claims hold, {fail} fail, {undecided} undecided, {counts.total()} not judged."
    console.print(said, highlight=False)


def cells(judged: Sequence[Judged]) -> list[tuple[str, ...]]:
    """Returns the table's cells for each claim, with a line for each effect."""
    rows: list[tuple[str, ...]] = []
    for each in judged:
        n = str(min((effect.n for _, effect in each.effects), default=""))
        section = each.claim.section if each.claim.section == "abstract" else f"§{each.claim.section}"
        effects = "\n".join(_text(*effect) for effect in each.effects)
        rows.append((section, each.claim.text, effects, n, each.conclusion))
    return rows


def _text(part: Part, effect: Estimate) -> str:
    unit = UNITS[part.metric]
    value, low, high = (f"{each:+z.{DECIMALS[unit]}f}" for each in (effect.value, effect.low, effect.high))
    return f"{part.text}: {value} [{low}, {high}] {unit}"
