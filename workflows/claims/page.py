"""Shows judged claims on a terminal, and as one HTML page with the same table."""

from collections.abc import Sequence

from jinja2 import Environment
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
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{ title }}</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; font-size: 0.9rem }
th, td { padding: 0.4rem 0.8rem 0.4rem 0; text-align: left; vertical-align: top; white-space: pre-line }
tr { border-bottom: 1px solid #8885 }
p { max-width: 45rem }
</style>
<h1>{{ title }}</h1>
<p>{{ said }}</p>
<table><thead><tr>{% for heading in headings %}<th>{{ heading }}</th>{% endfor %}</tr></thead><tbody>
{% for row in rows %}<tr>{% for text in row %}<td>{{ text }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table>
<p>{{ explanation }}</p>
</html>
"""


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


def html(runs: Runs, judged: Sequence[Judged]) -> str:
    """Returns the page."""
    template = Environment(autoescape=True).from_string(PAGE)
    return template.render(
        title=title(runs), said=said(judged), headings=HEADINGS, rows=rows(judged), explanation=EXPLANATION
    )
