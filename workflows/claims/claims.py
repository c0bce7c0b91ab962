"""The paper's claims in words, as data, and their judge: what holds by the runs of a `seeds.csv`.

    judged = judge(read([Path("runs/table3/multi30k/seeds.csv")]))

docs/protocol.md has the rules. The primary outcome is the dev set's negative log-likelihood in nats per target token,
written as log-likelihood, so that more is better; BLEU and accuracy decide where the paper's sentence is about them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from pipeline.settings import read_toml
from workflows.claims.inference import Decided, Estimate, Groups, decided, every, holm, two_sided, within
from workflows.claims.seeds import CONDITIONS, Runs
from workflows.claims.welch import ALPHA

NATS, ACCURACY, BLEU = "final_dev_nll", "final_dev_accuracy", "paper_bleu.dev"
EQUAL_FLOP = "equal_flop_dev_nll"
"""Columns of seeds.csv."""
UNITS = {NATS: "nats", EQUAL_FLOP: "nats", ACCURACY: "accuracy", BLEU: "BLEU"}
LESS_IS_BETTER = (NATS, EQUAL_FLOP)
MARGINS = {"nats": 0.01, "BLEU": 0.2}
"""Up to this difference models are alike: what §6.2 calls nearly identical is below, what it interprets is above."""


@dataclass(frozen=True)
class Part:
    """A tested effect."""

    text: str
    metric: str
    models: tuple[str, ...]
    test: Callable[[Groups, Sequence[str], float], Estimate]
    """Takes the groups of values, the rivals among them, and the margin."""
    rivals: tuple[str, ...] = ()
    """Models of which the best is sought. Without some of them the claim may hold, but not fail."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper. It holds if all its parts do."""

    section: str
    text: str
    family: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Judged:
    """A claim and its verdict."""

    claim: Claim
    verdict: Decided | str
    """A verdict after correction, or why there is none."""
    p: float | None = None
    corrected_p: float | None = None
    effects: Sequence[tuple[Part, Estimate]] = ()

    @property
    def conclusion(self) -> str:
        """The verdict and its correction in words, e.g. `undecided after correction (p 0.04, corrected 0.21)`."""
        if self.p is None or self.corrected_p is None:
            return self.verdict
        changed = " after correction" * (self.p <= ALPHA < self.corrected_p)
        return f"{self.verdict}{changed} (p {self.p:.2g}, corrected {self.corrected_p:.2g})"


def difference(of: str, minus: str) -> Part:
    """The first model is better than the second."""
    return Part(f"{of} − {minus}", NATS, (of, minus), lambda groups, _, __: groups.difference(of, minus))


def alike(of: str, minus: str) -> Part:
    """Two models differ by less than the margin."""
    return replace(difference(of, minus), test=lambda groups, _, margin: groups.difference(of, minus, within(margin)))


def trend(*models: str) -> Part:
    """The models get better in order, as a whole."""
    return Part(f"{' → '.join(models)}, a step", NATS, models, lambda groups, _, __: groups.trend(models))


def behind_best(model: str, *rivals: str) -> Part:
    """A model is worse than the best of the others."""
    text = f"{model} behind the best of {', '.join(rivals)}"
    return Part(text, NATS, (model,), lambda groups, others, _: groups.behind_best(model, others), rivals)


PARTS: Mapping[str, Callable[..., Part]] = MappingProxyType(
    {"difference": difference, "alike": alike, "trend": trend, "behind_best": behind_best}
)
COMPETITORS = "competitors"


def _part(metric: str = NATS, **test: Sequence[str]) -> Part:
    ((kind, models),) = test.items()
    return replace(PARTS[kind](*models), metric=metric)


CLAIMS = tuple(
    Claim(**{**claim, "parts": tuple(_part(**part) for part in claim["parts"])})
    for claim in read_toml(Path(__file__).with_name("claims.toml"))["claims"]
)
"""All claims; those of a family are corrected together, run or not."""


def judge(runs: Runs) -> list[Judged]:
    """Judges every claim."""
    groups = {part.metric: Groups(_values(part.metric, runs)) for claim in CLAIMS for part in claim.parts}
    tested = [_tested(claim, runs, groups) for claim in CLAIMS]
    corrected: dict[int, float] = {}
    for family in dict.fromkeys(claim.family for claim in CLAIMS):
        numbers = [number for number, claim in enumerate(CLAIMS) if claim.family == family]
        p_values = [1.0 if isinstance(found := tested[n], str) else two_sided(*found[:2]) for n in numbers]
        corrected |= zip(numbers, holm(p_values), strict=True)
    judged = []
    for number, (claim, found) in enumerate(zip(CLAIMS, tested, strict=True)):
        if isinstance(found, str):
            judged.append(Judged(claim, found))
        else:
            p_holds, p_fails, effects = found
            p = corrected[number]
            judged.append(Judged(claim, decided(p_holds, p_fails, p), two_sided(p_holds, p_fails), p, effects))
    return judged


def _tested(
    claim: Claim, runs: Runs, groups: Mapping[str, Groups]
) -> tuple[float, float, list[tuple[Part, Estimate]]] | str:
    """Returns the p-values that a claim holds and fails, with its effects; or why there are none."""
    rivals = [rival for part in claim.parts for rival in part.rivals if runs.of(rival)]
    models = dict.fromkeys([*(model for part in claim.parts for model in part.models), *rivals])
    missing = [model for model in models if not runs.of(model)]
    if missing or any(part.rivals and not rivals for part in claim.parts):
        return f"not run: {', '.join(missing or claim.parts[0].rivals)}"
    for name in CONDITIONS if claim.family != COMPETITORS else CONDITIONS[:-1]:  # equal FLOP take other updates
        if len(conditions := {f"{getattr(run, name)}" for model in models for run in runs.of(model)}) > 1:
            return f"not comparable: {name} {' and '.join(sorted(conditions))}"
    estimates, effects = [], []
    for part in claim.parts:
        values = groups[part.metric].values
        if not all(model in values and len(values[model]) == len(runs.of(model)) for model in (*part.models, *rivals)):
            names = " and ".join((*part.models, *rivals))
            unequal = f"not comparable: {names} were not trained in one table with equal FLOP"
            return unequal if part.metric == EQUAL_FLOP else f"not run: {part.metric} of {names}"
        tested = part.test(groups[part.metric], rivals, MARGINS.get(UNITS[part.metric], 0.0))
        estimates.append(replace(tested, p_fails=1.0) if len(rivals) < len(part.rivals) else tested)
        effects.append((part, tested))
    if any(each.n < 2 for each in estimates):
        return "undecided: a single run has no spread"
    return *every(estimates), effects


def _values(metric: str, runs: Runs) -> dict[str, list[float]]:
    """Returns the values of every model that has the metric; more is better."""
    sign = -1 if metric in LESS_IS_BETTER else 1
    values: dict[str, list[float]] = {}
    for run in runs.runs:
        if metric in run.metrics:
            values.setdefault(run.model, []).append(sign * run.metrics[metric])
    return values
