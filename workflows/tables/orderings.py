"""Holds the paper's claims about the order of rows (§5.4, §6.2) against figures and the noise between seeds.

A difference counts only beyond the noise: trainings that differ in nothing but their seed differ as well. The noise is
taken from base, which is trained with several seeds, and assumed to be the same in every row.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from workflows import paper
from workflows.paper import KINDS, VARIATIONS, Kind
from workflows.tables.table import NAME, Column, Row, Table

Verdict = Literal["yes", "no", "within noise"]
Origin = Literal["paper", "here"]
ORIGINS: tuple[Origin, ...] = ("paper", "here")
KIND_NAMES: dict[Kind, str] = {"perplexity": "perplexity", "bleu": "BLEU"}
ANSWERS = {True: "yes", False: "no", None: "unknown"}
NOISE_FACTOR = 2.0
"""A difference is within noise up to this multiple of the standard deviation that noise by itself gives it."""


@dataclass(frozen=True)
class Standing:
    """What a row is judged by: its figures, each the mean over `seeds` trainings."""

    figures: Mapping[Kind, float]
    seeds: int = 1


@dataclass(frozen=True)
class Noise:
    """How far apart trainings of base lie that differ only in their seed."""

    seeds: int
    deviations: Mapping[Kind, float]
    """Sample standard deviations: of BLEU, and of the natural logarithm of perplexity, whose differences are ratios."""

    @classmethod
    def between(cls, trainings: Sequence[Mapping[Kind, float]]) -> "Noise | None":
        """Measures the noise from the figures of each training; None where there are fewer than two."""
        if len(trainings) < 2:
            return None
        scaled = {kind: [_scaled(kind, figures[kind]) for figures in trainings] for kind in KINDS}
        return cls(len(trainings), {kind: statistics.stdev(values) for kind, values in scaled.items()})

    def limit(self, kind: Kind, seeds: int, other_seeds: int) -> float:
        """Returns the largest difference between two rows' means that is within noise, given their numbers of seeds.

        It is in BLEU, or in the natural logarithm of perplexity.
        """
        return NOISE_FACTOR * self.deviations[kind] * math.sqrt(1 / seeds + 1 / other_seeds)

    def is_exceeded(self, kind: Kind, row: Standing, other: Standing) -> bool:
        """Tells whether two rows differ by more than noise, whichever is the better."""
        difference = _scaled(kind, row.figures[kind]) - _scaled(kind, other.figures[kind])
        return abs(difference) > self.limit(kind, row.seeds, other.seeds)


@dataclass(frozen=True)
class OrderingOutcome:
    """A claim of the paper about some rows, and whether the figures support it."""

    said: str
    rows: tuple[str, ...]
    """The rows that the claim ranks, each better than the one before; for the relation "best", the rows that were
    measured, and last the one that is better than each of them; for "equal", rows as good as each other."""
    printed: Mapping[Kind, bool | None]
    """Whether the claim holds for the printed figures as they stand; None where only their noise, which the paper does
    not print, could tell."""
    measured: Mapping[Kind, bool | None]
    """Whether it holds for the measured means as they stand, whatever the noise; None where a row was not measured, and
    for rows said to be equal that are not exactly so."""
    relation: paper.Relation = "better"
    reversed: tuple[Kind, ...] = ()
    """The figures by which each row is said to be worse than the one before."""
    verdict: Mapping[Kind, Verdict | None] = field(default_factory=dict)
    """Whether the claim holds beyond the noise between seeds; None where a row or the noise was not measured."""

    def order(self) -> str:
        """Writes the order that the claim gives its rows, from the worse to the better."""
        if self.relation == "best":
            return f"{len(self.rows) - 1} of {len(VARIATIONS) - 1} rows → {self.rows[-1]}"
        if self.relation == "equal":
            return " = ".join(self.rows)
        if self.reversed:
            directions = {kind: self.rows[::-1] if kind in self.reversed else self.rows for kind in KINDS}
            return ", ".join(f"{KIND_NAMES[kind]} {' → '.join(rows)}" for kind, rows in directions.items())
        return " → ".join(self.rows)

    def answer(self, kind: Kind, origin: Origin) -> str:
        """Says whether the claim holds, with a question mark where the noise, which could tell, was not measured."""
        if origin == "paper":
            return ANSWERS[self.printed[kind]]
        verdict, measured = self.verdict.get(kind), self.measured[kind]
        return verdict or ANSWERS[measured] + ("" if measured is None else "?")


def claims(orderings: Sequence[OrderingOutcome]) -> Table:
    """Returns the claims with their answers as a table."""
    columns = [Column(NAME, "claim in §6.2, §5.4"), Column("order", "worse → better")]
    columns += [Column(f"{kind}.{origin}", origin, KIND_NAMES[kind]) for kind in KINDS for origin in ORIGINS]
    rows = []
    for outcome in orderings:
        answers = {f"{kind}.{origin}": outcome.answer(kind, origin) for kind in KINDS for origin in ORIGINS}
        rows.append(Row(outcome.said, "", {"order": outcome.order(), **answers}))
    return Table("What the paper concludes from it", columns, rows)


def outcomes(
    measured: Mapping[str, Standing], printed: Mapping[str, Standing], noise: Noise | None
) -> list[OrderingOutcome]:
    """Judges the claims of which a row other than base was measured; both mappings have the paper's rows by name."""
    return [
        OrderingOutcome(
            ordering.claim,
            rows_of(ordering, measured),
            {kind: _holds(ordering, kind, printed) for kind in KINDS},
            {kind: _holds(ordering, kind, measured) for kind in KINDS},
            ordering.relation,
            ordering.reversed,
            {kind: _verdict(ordering, kind, measured, noise) for kind in KINDS},
        )
        for ordering in paper.ORDERINGS
        if any(name in measured for name in ordering.rows if name != "base")
    ]


def rows_of(ordering: paper.Ordering, measured: Iterable[str]) -> tuple[str, ...]:
    """Returns the rows of a claim; for one about the best row, all others that were measured come first."""
    others = [name for name in measured if name not in ordering.rows] if ordering.relation == "best" else []
    return (*others, *ordering.rows)


def notes(noise: Noise | None) -> list[str]:
    """Explains the answers to the claims, and how large the noise is that they were held against."""
    printed = "The paper prints one figure a row and no noise, so its columns compare the figures as printed."
    if noise is None:
        return [
            "How far trainings of base differ from seed to seed was not measured, so any difference between rows may "
            "be chance; an answer with a question mark compares the figures as they stand. To measure it, --seeds 3 "
            "trains every row with three seeds, and --set grid.base_seeds=3 only base.",
            printed,
        ]
    of_perplexity, of_bleu = (noise.deviations[kind] for kind in KINDS)
    perplexity, bleu = (noise.limit(kind, 1, noise.seeds) for kind in KINDS)
    return [
        f"Noise: {noise.seeds} trainings of base, which differ only in their seed, have a standard deviation s of "
        f"{_percent(of_perplexity)} in perplexity (s of its logarithm) and of {of_bleu:.2f} in BLEU. Two rows differ "
        f"by more than noise where their means, over n and m seeds, differ by more than {NOISE_FACTOR:g} s √(1/n + "
        f"1/m): a row of one seed and base, by more than {_percent(perplexity)} in perplexity or {bleu:.2f} in BLEU. "
        f"{noise.seeds} seeds give s only roughly.",
        "A claim holds (yes) where each of its steps exceeds the noise, and fails (no) where one does so in the "
        "opposite direction. Rows are as good as each other (yes) where they differ by no more than noise.",
        printed,
    ]


def _percent(log_ratio: float) -> str:
    """Formats a difference of logarithms as the ratio that it stands for, e.g. 0.0198 as `2.0 %`."""
    return f"{100 * math.expm1(log_ratio):.1f} %"


def _gains(ordering: paper.Ordering, kind: Kind, rows: Mapping[str, Standing]) -> list[tuple[float, int, int]]:
    """Returns what each step of a claim gains in the direction claimed, and the seeds of both rows.

    Gains are in BLEU or in the logarithm of perplexity. There are none where a row is missing.
    """
    names = rows_of(ordering, rows)
    if not set(names) <= rows.keys():
        return []
    pairs = [(name, names[-1]) for name in names[:-1]] if ordering.relation == "best" else pairwise(names)
    sign = -1 if (kind == "perplexity") != (kind in ordering.reversed) else 1
    figures = {name: _scaled(kind, rows[name].figures[kind]) for name in names}
    return [
        (sign * (figures[after] - figures[before]), rows[before].seeds, rows[after].seeds) for before, after in pairs
    ]


def _scaled(kind: Kind, figure: float) -> float:
    """Returns a figure on the scale on which differences are compared."""
    return math.log(figure) if kind == "perplexity" else figure


def _holds(ordering: paper.Ordering, kind: Kind, rows: Mapping[str, Standing]) -> bool | None:
    gains = [gain for gain, _, _ in _gains(ordering, kind, rows)]
    if not gains:
        return None
    if ordering.relation == "equal":
        return None if any(gains) else True
    return min(gains) > 0


def _verdict(ordering: paper.Ordering, kind: Kind, rows: Mapping[str, Standing], noise: Noise | None) -> Verdict | None:
    gains = _gains(ordering, kind, rows)
    if noise is None or not gains:
        return None
    beyond = [(gain, abs(gain) > noise.limit(kind, *seeds)) for gain, *seeds in gains]
    if ordering.relation == "equal":
        return "no" if any(is_beyond for _, is_beyond in beyond) else "yes"
    if any(is_beyond and gain < 0 for gain, is_beyond in beyond):
        return "no"
    return "yes" if all(is_beyond for _, is_beyond in beyond) else "within noise"
