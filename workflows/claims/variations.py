"""The claims that rest on the rows of Table 3 (§5.4, §6.2).

The primary outcome is the dev set's negative log-likelihood in nats per target token, of which ln(perplexity) is the
printed one; BLEU and accuracy stand beside it and decide only where the paper's sentence names them. Every row has
trainings of its own, and all share one variance.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workflows.claims.claim import Claim, Effect, Finding
from workflows.claims.inference import POSITIVE, Estimate, Groups, every, within
from workflows.paper import VARIATIONS

FAMILY, CONTROL = "Table 3", "negative control"
COMMAND = "python -m workflows.reproduce_table3 --profile multi30k --seeds 3"
N_HEADS = ("A1", "A2", "base", "A3", "A4")
"""The rows of 1, 4, 8, 16 and 32 heads."""


@dataclass(frozen=True)
class Trained:
    """What one training of a row reached on the dev set."""

    nll: float
    """Nats per target token, without label smoothing."""
    bleu: float
    """Paper BLEU, or sacreBLEU where that is not defined."""
    accuracy: float | None = None
    """The share of target tokens predicted; None in artifacts of versions that did not count it."""


Rows = Mapping[str, Sequence[Trained]]
"""The trainings by row, one a seed."""


def printed_nats(row: str, *, minus: str = "base") -> float:
    """Returns a difference of log-perplexities that Table 3 prints."""
    return math.log(float(VARIATIONS[row].perplexity) / float(VARIATIONS[minus].perplexity))


def printed_bleu(row: str, *, minus: str = "base") -> float:
    """Returns a difference in BLEU that Table 3 prints."""
    return round(float(VARIATIONS[row].bleu) - float(VARIATIONS[minus].bleu), 1)


INTERPRETED = ("A4", "B2")
"""The rows nearest to base of which a sentence of §6.2 says that they are worse."""
MARGIN_NATS = min(printed_nats(row) for row in INTERPRETED) / 2
MARGIN_BLEU = min(-printed_bleu(row) for row in INTERPRETED) / 2
"""Up to half the smallest difference that the paper interprets, models are alike: 0.009 nats and 0.2 BLEU."""


def metric(rows: Rows, of: Callable[[Trained], float | None]) -> Groups | None:
    """Returns one metric of all rows; None where a training lacks it."""
    values = {name: [of(training) for training in trainings] for name, trainings in rows.items() if trainings}
    known = {name: [value for value in of_row if value is not None] for name, of_row in values.items()}
    return Groups(known) if all(len(known[name]) == len(of_row) for name, of_row in values.items()) else None


def log_likelihood(rows: Rows) -> Groups:
    """Returns the mean log-likelihood of a token, in which more is better: -NLL."""
    return Groups({name: [-each.nll for each in trainings] for name, trainings in rows.items() if trainings})


def bleu(rows: Rows) -> Groups:
    """Returns BLEU."""
    return Groups({name: [each.bleu for each in trainings] for name, trainings in rows.items() if trainings})


def _have(rows: Rows, *names: str) -> bool:
    return all(rows.get(name) for name in names)


def _behind_best(name: str) -> Callable[[Rows], Finding | None]:
    """Judges whether a number of heads is worse than the best number."""

    def judge(rows: Rows) -> Finding | None:
        others = [other for other in N_HEADS if other != name and _have(rows, other)]
        if not (_have(rows, name) and others):
            return None
        best = min(others, key=lambda other: float(VARIATIONS[other].perplexity))
        best_bleu = max(others, key=lambda other: float(VARIATIONS[other].bleu))
        nats = log_likelihood(rows).behind_best(name, others, POSITIVE)
        of_bleu = bleu(rows).behind_best(name, others, POSITIVE)
        what = f"{name} behind the best of {', '.join(others)}"
        effects = (
            Effect.of(what, "nats", nats, POSITIVE, printed_nats(name, minus=best)),
            Effect.of(what, "BLEU", of_bleu, POSITIVE, -printed_bleu(name, minus=best_bleu)),
        )
        return Finding(nats.p_holds, nats.p_fails, effects)

    return judge


def _step(rows: Rows, chain: Sequence[str]) -> tuple[Estimate, Effect] | None:
    """Tests the trend over rows that the paper orders from worse to better."""
    if not _have(rows, *chain):
        return None
    tested = log_likelihood(rows).trend(chain, POSITIVE)
    printed = Groups({name: [-math.log(float(VARIATIONS[name].perplexity))] for name in chain}).trend(chain, POSITIVE)
    return tested, Effect.of(f"{' → '.join(chain)}, a step", "nats", tested, POSITIVE, printed.value)


def _trends(*chains: Sequence[str]) -> Callable[[Rows], Finding | None]:
    """Judges whether the rows of each chain get better, as a whole."""

    def judge(rows: Rows) -> Finding | None:
        steps = [step for chain in chains if (step := _step(rows, chain))]
        if len(steps) < len(chains):
            return None
        return Finding(*every([tested for tested, _ in steps]), [effect for _, effect in steps])

    return judge


def _worse(name: str) -> Callable[[Rows], Finding | None]:
    """Judges whether a row is worse than base."""

    def judge(rows: Rows) -> Finding | None:
        if not _have(rows, name, "base"):
            return None
        nats, of_bleu = (each.difference("base", name, POSITIVE) for each in (log_likelihood(rows), bleu(rows)))
        effects = (
            Effect.of(f"base − {name}", "nats", nats, POSITIVE, printed_nats(name)),
            Effect.of(f"base − {name}", "BLEU", of_bleu, POSITIVE, -printed_bleu(name)),
        )
        return Finding(nats.p_holds, nats.p_fails, effects)

    return judge


def _smoothing(rows: Rows) -> Finding | None:
    """Judges whether label smoothing hurts perplexity and improves accuracy and BLEU: all three."""
    accuracy = metric(rows, lambda training: training.accuracy)
    if not _have(rows, "D3", "base") or accuracy is None:
        return None
    tested = {
        "nats": log_likelihood(rows).difference("D3", "base", POSITIVE),
        "accuracy": accuracy.difference("base", "D3", POSITIVE),
        "BLEU": bleu(rows).difference("base", "D3", POSITIVE),
    }
    printed = {"nats": -printed_nats("D3"), "BLEU": -printed_bleu("D3")}
    effects = [
        Effect.of(f"{'D3 − base' if unit == 'nats' else 'base − D3'}", unit, each, POSITIVE, printed.get(unit))
        for unit, each in tested.items()
    ]
    return Finding(*every([*tested.values()]), effects)


def _alike(name: str) -> Callable[[Rows], Finding | None]:
    """Judges whether a row is as good as base, within the margin."""

    def judge(rows: Rows) -> Finding | None:
        if not _have(rows, name, "base"):
            return None
        margins = within(MARGIN_NATS), within(MARGIN_BLEU)
        nats, of_bleu = (
            each.difference("base", name, margin)
            for each, margin in zip((log_likelihood(rows), bleu(rows)), margins, strict=True)
        )
        effects = (
            Effect.of(f"base − {name}", "nats", nats, margins[0], printed_nats(name)),
            Effect.of(f"base − {name}", "BLEU", of_bleu, margins[1], -printed_bleu(name)),
        )
        return Finding(nats.p_holds, nats.p_fails, effects)

    return judge


def _base_against_base(rows: Rows) -> Finding | None:
    """Compares some seeds of base with the others: whatever comes out but undecided is chance."""
    seeds = rows.get("base", ())
    if len(seeds) < 2:
        return None
    half = len(seeds) // 2
    others = {name: trainings for name, trainings in rows.items() if name != "base"}
    split = {**others, "some seeds": seeds[half:], "other seeds": seeds[:half]}
    nats = log_likelihood(split).difference("some seeds", "other seeds", POSITIVE)
    of_bleu = bleu(split).difference("some seeds", "other seeds", POSITIVE)
    what = f"base, {len(seeds) - half} seeds − {half} others"
    effects = (
        Effect.of(what, "nats", nats, POSITIVE, 0.0),
        Effect.of(what, "BLEU", of_bleu, POSITIVE, 0.0),
    )
    return Finding(nats.p_holds, nats.p_fails, effects)


def _claim(section: str, text: str, judge: Callable[[Rows], Finding | None]) -> Claim:
    return Claim(section, text, FAMILY, ("table3",), judge, data="real text", lacks=COMMAND)


CLAIMS: tuple[Claim, ...] = (
    _claim("5.4", "label smoothing hurts perplexity, but improves accuracy and BLEU", _smoothing),
    _claim("6.2", "single-head attention is worse than the best setting", _behind_best("A1")),
    _claim("6.2", "quality also drops off with too many heads", _behind_best("A4")),
    _claim("6.2", "reducing the attention key size d_k hurts model quality", _trends(("B1", "B2", "base"))),
    _claim(
        "6.2",
        "bigger models are better: in layers, in d_model and in d_ff",
        _trends(("C1", "C2", "base", "C3"), ("C4", "base", "C5"), ("C6", "base", "C7")),
    ),
    _claim("6.2", "dropout is very helpful in avoiding over-fitting", _worse("D1")),
    _claim("6.2", "learned positional embeddings give nearly identical results to the base model", _alike("E")),
    Claim(
        CONTROL,
        "base differs from base with other seeds",
        CONTROL,
        ("table3",),
        _base_against_base,
        "control",
        "real text",
        COMMAND,
    ),
)
