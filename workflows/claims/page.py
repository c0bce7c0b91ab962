"""Shows judged claims as a table, on a terminal or in Markdown."""

from collections.abc import Sequence

from rich.box import HORIZONTALS
from rich.table import Table

from workflows.claims.claims import Effect, Judged
from workflows.claims.inference import ALPHA
from workflows.claims.seeds import Runs

DECIMALS = {"nats": 3, "accuracy": 3, "BLEU": 2}
HEADINGS = ("section", "claim", "effect [95%]", "by the other variance", "n", "verdict")
EXPLANATION = (
    "A claim holds if the 95% interval of its effect lies wholly where the claim says, fails if wholly elsewhere, and "
    "is undecided otherwise. Positive means better. The interval is by a variance pooled over all models of the files; "
    "where Bartlett's test rejects equal variances, it is by each model's own (Welch). p is corrected for all claims "
    "of the family, run or not (Holm): where variances are equal, at most 5% of simulated families then have a wrong "
    "verdict. The rules are in docs/protocol.md."
)


def title(runs: Runs) -> str:
    """Names the runs that the claims are judged by."""
    return f"The paper's claims, by {len(runs.runs)} runs on {runs.data}, {runs.pair.upper()}"


def said(judged: Sequence[Judged]) -> str:
    """Counts the verdicts in a sentence."""
    counts = {verdict: sum(each.verdict == verdict for each in judged) for verdict in ("holds", "fails", "undecided")}
    others = len(judged) - sum(counts.values())
    hold, fail, undecided = counts.values()
    return f"{hold} claims hold, {fail} fail, {undecided} are undecided, {others} were not judged."


def rows(judged: Sequence[Judged]) -> list[tuple[str, ...]]:
    """Returns the cells of each claim, with a line for each effect."""
    lines: list[tuple[str, ...]] = []
    for each in judged:
        effects, beside = [], []
        for effect in each.effects:
            by, other = ("pooled", "Welch") if effect.bartlett_p >= ALPHA else ("Welch", "pooled")
            interval = {"pooled": _interval(effect, effect.pooled), "Welch": _interval(effect, effect.welch)}
            effects.append(f"{effect.text}: {_number(effect, effect.value)} {interval[by]} {effect.unit}")
            beside.append(f"{other} {interval[other]}, Bartlett p {effect.bartlett_p:.2g}")
        n = str(min((effect.n for effect in each.effects), default=""))
        section = each.claim.section if each.claim.section == "abstract" else f"§{each.claim.section}"
        lines.append((section, each.claim.text, "\n".join(effects), "\n".join(beside), n, each.conclusion))
    return lines


def _number(effect: Effect, value: float) -> str:
    return f"{value:+z.{DECIMALS[effect.unit]}f}"


def _interval(effect: Effect, interval: tuple[float, float]) -> str:
    return f"[{', '.join(_number(effect, limit) for limit in interval)}]"


def terminal(judged: Sequence[Judged]) -> Table:
    """Returns the table for a terminal."""
    grid = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, border_style="dim")
    for heading in HEADINGS:
        grid.add_column(heading, overflow="fold")
    for row in rows(judged):
        grid.add_row(*row)
    return grid
