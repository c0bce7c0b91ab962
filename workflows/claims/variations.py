"""Claims on the rows of Table 3 (§5.4, §6.2).

The primary outcome is the dev set's negative log-likelihood in nats per target token; the printed value is
ln(perplexity). BLEU and accuracy decide only if the paper's sentence names them. Every row has its own runs, and all
rows share one variance.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from workflows.claims.claim import Claim, Effect, Finding
from workflows.claims.inference import POSITIVE, Estimate, Groups, Region, within
from workflows.paper import VARIATIONS

FAMILY, CONTROL = "Table 3", "negative control"
COMMAND = "python -m workflows.reproduce_table3 --profile multi30k --seeds 3"
N_HEADS = ("A1", "A2", "base", "A3", "A4")
"""The rows of 1, 4, 8, 16 and 32 heads."""


@dataclass(frozen=True)
class Trained:
    """The dev set results of one run of a row."""

    nll: float
    """Nats per target token, without label smoothing."""
    bleu: float
    """Paper BLEU, or sacreBLEU if paper BLEU is undefined."""
    accuracy: float | None = None
    """The fraction of target tokens predicted; None in artifacts of earlier versions."""


Rows = Mapping[str, Sequence[Trained]]
"""The runs by row, one per seed."""


def printed_nats(row: str, *, minus: str = "base") -> float:
    """Returns a difference of printed log-perplexities in Table 3."""
    return math.log(float(VARIATIONS[row].perplexity) / float(VARIATIONS[minus].perplexity))


def printed_bleu(row: str, *, minus: str = "base") -> float:
    """Returns a difference of printed BLEU in Table 3."""
    return round(float(VARIATIONS[row].bleu) - float(VARIATIONS[minus].bleu), 1)


INTERPRETED = ("A4", "B2")
"""The rows nearest to base that §6.2 calls worse."""
MARGIN_NATS = min(printed_nats(row) for row in INTERPRETED) / 2
MARGIN_BLEU = min(-printed_bleu(row) for row in INTERPRETED) / 2
"""The margins within which models are alike: half the smallest difference that the paper interprets, 0.009 nats and 0.2
BLEU."""


def metric(rows: Rows, of: Callable[[Trained], float | None]) -> Groups:
    """Returns one metric of the rows whose runs all have it."""
    values = {name: [of(each) for each in trainings] for name, trainings in rows.items() if trainings}
    known = {name: [value for value in of_row if value is not None] for name, of_row in values.items()}
    return Groups({name: of_row for name, of_row in known.items() if len(of_row) == len(values[name])})


def log_likelihood(rows: Rows) -> Groups:
    """Returns the mean log-likelihood of a token, -NLL: higher is better."""
    return metric(rows, lambda training: -training.nll)


def bleu(rows: Rows) -> Groups:
    """Returns BLEU."""
    return metric(rows, lambda training: training.bleu)


def _have(rows: Rows, *names: str) -> bool:
    return all(rows.get(name) for name in names)


def _by_likelihood(text: str, nats: Estimate, bleu_: Estimate, printed: tuple[float, float], here: str = "") -> Finding:
    """Returns the finding on the primary outcome; BLEU is reported but decides nothing."""
    effects = Effect.of(text, "nats", nats, printed[0]), Effect.of(text, "BLEU", bleu_, printed[1])
    return Finding.of([nats], effects, here)


def _behind_best(name: str) -> Callable[[Rows], Finding | None]:
    """Judges whether a number of heads is worse than the best number.

    A row behind the best of some rows is behind the best of all. For a row to be as good as the best takes all rows.
    """

    def judge(rows: Rows) -> Finding | None:
        others = [other for other in N_HEADS if other != name and _have(rows, other)]
        if not (_have(rows, name) and others):
            return None
        best = min(others, key=lambda other: float(VARIATIONS[other].perplexity))
        best_bleu = max(others, key=lambda other: float(VARIATIONS[other].bleu))
        nats, of_bleu = (each.behind_best(name, others) for each in (log_likelihood(rows), bleu(rows)))
        printed = printed_nats(name, minus=best), -printed_bleu(name, minus=best_bleu)
        missing = [other for other in N_HEADS if not _have(rows, other)]
        here = f"without {', '.join(missing)}, which may be better, the claim cannot fail" if missing else ""
        found = _by_likelihood(f"{name} behind the best of {', '.join(others)}", nats, of_bleu, printed, here)
        return replace(found, p_fails=1.0) if missing else found

    return judge


def _step(rows: Rows, chain: Sequence[str]) -> tuple[Estimate, Effect]:
    """Tests the trend over rows that the paper orders from worse to better."""
    tested = log_likelihood(rows).trend(chain)
    printed = Groups({name: [-math.log(float(VARIATIONS[name].perplexity))] for name in chain}).trend(chain)
    return tested, Effect.of(f"{' → '.join(chain)}, a step", "nats", tested, printed.value)


def _trends(*chains: Sequence[str]) -> Callable[[Rows], Finding | None]:
    """Judges whether the rows of each chain get better, as a whole."""

    def judge(rows: Rows) -> Finding | None:
        if not all(_have(rows, *chain) for chain in chains):
            return None
        tested, effects = zip(*(_step(rows, chain) for chain in chains), strict=True)
        return Finding.of(tested, effects)

    return judge


def _below_base(name: str, in_nats: Region = POSITIVE, in_bleu: Region = POSITIVE) -> Callable[[Rows], Finding | None]:
    """Judges whether base less a row lies in a region, by default above 0: the row is worse."""

    def judge(rows: Rows) -> Finding | None:
        if not _have(rows, name, "base"):
            return None
        nats = log_likelihood(rows).difference("base", name, in_nats)
        of_bleu = bleu(rows).difference("base", name, in_bleu)
        return _by_likelihood(f"base − {name}", nats, of_bleu, (printed_nats(name), -printed_bleu(name)))

    return judge


def _smoothing(rows: Rows) -> Finding | None:
    """Judges whether label smoothing hurts perplexity and improves accuracy and BLEU: all three."""
    accuracies = metric(rows, lambda training: training.accuracy)
    if not {"D3", "base"} <= accuracies.values.keys():
        return None
    nats = log_likelihood(rows).difference("D3", "base")
    share, of_bleu = (each.difference("base", "D3") for each in (accuracies, bleu(rows)))
    effects = (
        Effect.of("D3 − base", "nats", nats, -printed_nats("D3")),
        Effect.of("base − D3", "accuracy", share),
        Effect.of("base − D3", "BLEU", of_bleu, -printed_bleu("D3")),
    )
    return Finding.of([nats, share, of_bleu], effects)


def _base_against_base(rows: Rows) -> Finding | None:
    """Compares some seeds of base with the others: any verdict other than undecided is chance.

    n counts all runs of base: both sides are one row, so one side may have a single run.
    """
    seeds = rows.get("base", ())
    if len(seeds) < 2:
        return None
    half = len(seeds) // 2
    others = {name: trainings for name, trainings in rows.items() if name != "base"}
    split = {**others, "some seeds": seeds[half:], "other seeds": seeds[:half]}
    nats, of_bleu = (
        replace(each.difference("some seeds", "other seeds"), n=len(seeds))
        for each in (log_likelihood(split), bleu(split))
    )
    return _by_likelihood(f"base, {len(seeds) - half} seeds − {half} others", nats, of_bleu, (0.0, 0.0))


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
    _claim("6.2", "dropout is very helpful in avoiding over-fitting", _below_base("D1")),
    _claim(
        "6.2",
        "learned positional embeddings give nearly identical results to the base model",
        _below_base("E", within(MARGIN_NATS), within(MARGIN_BLEU)),
    ),
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
