"""Claims of one family are corrected for each other. Claims that cannot be judged have a reason."""

import math
from dataclasses import replace

import pytest

from workflows.claims.claim import Claim, Effect, Evidence, Finding, Judged, Printed, Verdict, judged
from workflows.claims.inference import Estimate, Groups, Region, paired, within


def claim(text: str, finding: Finding | None, family: str = "one") -> Claim:
    """A claim whose judge always returns the same finding."""
    return Claim("6.2", text, family, ("table3",), lambda _: finding, data="real text", lacks="a command")


FOUND = Evidence({"table3": None}, ("real text",))


def finding(p_holds: float, p_fails: float | None = None) -> Finding:
    """A finding with these p-values."""
    return Finding(p_holds, 1 - p_holds if p_fails is None else p_fails)


def test_p_values_of_a_family_are_corrected() -> None:
    """By Holm: of 2 · 0.01, 2 · 0.015 and 2 · 0.02, the smallest counts thrice, the next twice or as the one before."""
    claims = [claim("first", finding(0.015)), claim("second", finding(0.01)), claim("third", finding(0.98, 0.02))]
    other = claim("of another family", finding(0.02), "another")
    outcomes = judged([*claims, other], FOUND)
    assert [each.p for each in outcomes] == [pytest.approx(p) for p in (0.06, 0.06, 0.06, 0.04)]
    assert [each.verdict for each in outcomes] == ["undecided", "undecided", "undecided", "holds"]
    assert [each.verdict for each in judged(claims[:2], FOUND)] == ["holds", "holds"]
    assert judged(claims[2:], FOUND)[0].verdict == "fails"


def test_what_is_certain_takes_nothing_from_the_others() -> None:
    """A count without noise is not a test: the other claims are corrected as if it were absent."""
    certain = claim("counted", Finding.certain(False, "3 of 4"))
    outcomes = judged([certain, certain, claim("tested", finding(0.02))], FOUND)
    assert [each.verdict for each in outcomes] == ["fails", "fails", "holds"]
    assert (outcomes[0].p, outcomes[2].p) == (0.0, pytest.approx(0.04))
    assert outcomes[0].here == "3 of 4"
    assert judged([claim("counted", Finding.certain(True, ""))], FOUND)[0].verdict == "holds"


@pytest.mark.parametrize(
    ("found", "data", "verdict"),
    [
        (Evidence({"table3": None}), "real text", "needs real text"),
        (Evidence({"table3": None}, ("real text",)), "WMT14", "needs WMT14"),
        (Evidence({}, ("WSJ",)), "WSJ", "not run"),
        (Evidence({"table3": None}), "", "holds"),
    ],
)
def test_what_cannot_be_judged_says_why(found: Evidence, data: str, verdict: Verdict) -> None:
    """On other data or without evidence, the row has what would fill it and the paper's values."""
    printed = Printed("holds", "2 − 1")
    asked = Claim("1", "text", "one", ("table3",), lambda _: finding(0.0), data=data, lacks="run it", printed=printed)  # type: ignore[arg-type]
    (outcome,) = judged([asked], found)
    lacks = "" if verdict == "holds" else "run it"
    assert (outcome.verdict, outcome.lacks, outcome.printed) == (verdict, lacks, printed)
    assert (outcome.p is None) == (verdict != "holds")


def test_a_judge_that_lacks_something_is_not_run() -> None:
    """Like for a missing row. It does not affect the other claims of its family."""
    missing, tested = judged([claim("missing", None), claim("tested", finding(0.02))], FOUND)
    assert (missing.verdict, missing.p, tested.verdict) == ("not run", None, "holds")


def test_an_effect_keeps_only_the_limits_that_there_are() -> None:
    """Without repetitions there is no interval. A region open to one side has one limit."""
    once = Effect.of("a − b", "nats", paired([0.5]), 0.3)
    assert once == Effect("a − b", "nats", 0.5, 1, None, None, 0.0, None, 0.3)
    tested = Estimate(0.5, 0.1, 0.9, 2, 0.01, 0.99, within(2.0))
    assert Effect.of("a − b", "BLEU", tested) == Effect("a − b", "BLEU", 0.5, 2, 0.1, 0.9, -2.0, 2.0)
    assert Effect.of("a − b", "BLEU", replace(tested, region=Region(high=math.inf, low=-1))).below is None


def test_a_single_training_decides_nothing() -> None:
    """Not even if the noise of other rows is known: without an interval there is no verdict."""
    groups = Groups({"base": [1.0, 1.1, 1.2], "one": [9.0], "two": [9.0, 9.1]})
    once, twice = groups.difference("one", "base"), groups.difference("two", "base")
    assert (once.verdict(), twice.verdict()) == ("holds", "holds")
    assert Finding.of([once], []) == Finding.of([twice, once], []) == Finding(1.0, 1.0)
    assert (Effect.of("", "nats", once).low, Effect.of("", "nats", once).high) == (None, None)
    assert Finding.of([twice], [Effect.of("", "nats", twice)], "as well").p == twice.p
    assert Finding.of([twice, twice], []).p_fails == 1.0


def test_all_of_several_hold_by_the_weakest_and_fail_by_the_strongest() -> None:
    """The smallest p-value of several tests counts as often as there are tests (Bonferroni)."""
    tested = [Estimate(0, 0, 0, 3, *p) for p in ((0.01, 0.99), (0.6, 0.004))]
    assert Finding.of(tested, [], "so") == Finding(0.6, pytest.approx(0.008), (), "so")  # type: ignore[arg-type]


def test_places_are_marked_as_sections_or_named() -> None:
    """Sections are sorted like the paper's."""
    places = [Judged(section, "", "", "trained", "holds").place for section in ("6.2", "figure 4", "abstract")]
    assert places == ["§6.2", "figure 4", "abstract"]
