import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import UserError
from tests.support.command_line import CommandLine
from workflows.claims.claims import CLAIMS, Judged, judge
from workflows.claims.inference import ALPHA
from workflows.claims.seeds import Run, Runs, read

ROWS = {"model": "base", "pair": "en-de", "seed": 1, "data": "Multi30k task 1", "dtype": "float32", "updates": 100}
Values = Mapping[str, Sequence[float]]


def write(path: Path, nll: Values, **other: Any) -> Path:
    lines = [
        {**ROWS, "model": model, "seed": seed, "final_dev_nll": value, **other}
        for model, values in nll.items()
        for seed, value in enumerate(values, start=1)
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*lines[0]])
        writer.writeheader()
        writer.writerows(lines)
    return path


def runs(nll: Values, metric: str = "final_dev_nll", data: str = "Multi30k task 1", **conditions: str) -> Runs:
    alike = {**ROWS, "data": data, **conditions}
    found = [{**alike, "model": m, "seed": seed, metric: v} for m, vs in nll.items() for seed, v in enumerate(vs)]
    return Runs(data, "en-de", [Run.model_validate(run) for run in found])


def by_text(judged: Sequence[Judged]) -> dict[str, Judged]:
    return {each.claim.text: each for each in judged}


BASE = [1.70, 1.71, 1.69]
WORSE, ALIKE = [1.90, 1.91, 1.89], [1.701, 1.702, 1.700]
CASES: Sequence[tuple[str, Values, str]] = [
    ("single-head", {"base": BASE, "A1": WORSE}, "holds"),
    ("single-head", {"base": WORSE, "A1": BASE}, "undecided"),  # A2 to A4 might be better still, so it cannot fail
    ("single-head", {**dict.fromkeys(("A2", "base", "A3", "A4"), WORSE), "A1": BASE}, "fails"),
    ("single-head", {"base": BASE}, "not run: A1"),
    ("single-head", {"A1": BASE}, "not run: A2, base, A3, A4"),
    ("too many heads", {"base": BASE, "A4": [1.73, 1.74, 1.70]}, "undecided"),
    ("dropout", {"base": BASE, "D1": WORSE}, "holds"),
    ("dropout", {"base": WORSE, "D1": BASE}, "fails"),
    ("dropout", {"base": BASE, "D1": [1.9]}, "undecided: a single run has no spread"),
    ("reducing d_k", {"B1": [1.9, 1.92], "B2": [1.8, 1.81], "base": [1.7, 1.71]}, "holds"),
    ("bigger models", {"base": BASE, "C1": WORSE}, "not run: C2, C3, C4, C5, C6, C7"),
    ("learned positions", {"base": [1.7, 1.7001, 1.6999], "E": [1.701, 1.7011, 1.7009]}, "holds"),
    ("learned positions", {"base": BASE, "E": WORSE}, "fails"),
    ("label smoothing", {"base": BASE, "D3": BASE}, "not run: final_dev_accuracy of base and D3"),
    ("scaling counteracts", {"scaled_128": BASE, "dot_product_128": WORSE}, "holds"),
]


@pytest.mark.parametrize(("claim", "nll", "verdict"), CASES)
def test_verdicts(claim: str, nll: Values, verdict: str) -> None:
    (judged,) = (each for text, each in by_text(judge(runs(nll))).items() if claim in text)
    assert judged.verdict == verdict


def test_competitors_are_compared_at_equal_flop_whatever_their_updates() -> None:
    nll = {"base": BASE, "recurrent": WORSE, "convolutional": WORSE}
    superior = "superior in quality to recurrent and convolutional models"
    assert by_text(judge(runs(nll)))[superior].verdict.startswith("not run: equal_flop_dev_nll")
    several = runs(nll, "equal_flop_dev_nll")
    longer = [run.model_copy(update={"updates": number}) for number, run in enumerate(several.runs)]
    assert by_text(judge(Runs("Multi30k task 1", "en-de", longer)))[superior].verdict == "holds"


@pytest.mark.parametrize("condition", ["dtype", "updates"])
def test_unlike_runs_are_not_compared(condition: str) -> None:
    one, other = runs({"base": BASE}), runs({"D1": WORSE}, **{condition: "9"})
    judged = by_text(judge(Runs("Multi30k task 1", "en-de", [*one.runs, *other.runs])))
    assert judged["dropout is very helpful in avoiding over-fitting"].verdict.startswith(f"not comparable: {condition}")


def test_likeness_needs_the_margin_of_its_text() -> None:
    positions = "learned positions give nearly identical results"
    other = runs({"base": BASE, "E": BASE}, data="my text")
    assert by_text(judge(other))[positions].verdict == "not judged: my text has no margin yet; give one with --margin"
    assert by_text(judge(other, 0.5))[positions].verdict == "holds"


def test_a_family_is_corrected_for_all_its_claims_run_or_not() -> None:
    """The only claim of seven that was run: its p is times seven, and the page says what that changed."""
    judged = by_text(judge(runs({"base": [1.70, 1.72, 1.68], "D1": [1.77, 1.75, 1.73]})))
    only = judged["dropout is very helpful in avoiding over-fitting"]
    assert only.corrected_p == pytest.approx(7 * only.p)
    assert only.p < ALPHA < 7 * only.p
    assert only.conclusion.startswith("undecided after correction (p 0.0")


def test_unequal_variances_are_judged_by_welch() -> None:
    nll = {"base": [1.700, 1.7001, 1.6999], "D1": [1.95, 1.75, 1.85], "A1": [1.9, 1.9002, 1.9001]}
    (effect,) = by_text(judge(runs(nll)))["dropout is very helpful in avoiding over-fitting"].effects
    assert effect.bartlett_p < ALPHA
    assert effect.welch[0] < 0 < effect.pooled[0]
    assert by_text(judge(runs(nll)))["dropout is very helpful in avoiding over-fitting"].verdict == "undecided"


def test_few_families_have_a_wrong_verdict() -> None:
    """All rows of Table 3 are equal: what the protocol says of 5% is this simulation."""
    random, tables, wrong = np.random.default_rng(1), 150, 0
    models = dict.fromkeys(model for claim in CLAIMS for part in claim.parts for model in (*part.models, *part.rivals))
    for _ in range(tables):
        judged = judge(runs({model: random.normal(1.7, 0.01, 3).tolist() for model in models}), margin_nats=0.01)
        of_family = [each for each in judged if each.claim.family == "Table 3"]
        wrong += any(each.verdict == "holds" and "learned" not in each.claim.text for each in of_family) or any(
            each.verdict == "fails" for each in of_family
        )
    assert wrong / tables < ALPHA + 3 * (ALPHA * (1 - ALPHA) / tables) ** 0.5


HEADER = "model,pair,seed,data,dtype,updates"
WRONG: Sequence[tuple[str, str, str]] = [
    ("", r"seeds\.csv: List should have at least 1 item .*; name a seeds\.csv that Table 2 or 3 has written", "empty"),
    ("model,seed\nbase,1\n", r"seeds\.csv, line 2: pair: Field required", "foreign"),
    (f"{HEADER}\nA1,en-de,1,t,f,1\nA1,en-de,x,t,f,1\n", "line 3: seed: Input should be a valid integer", "no number"),
    (f"{HEADER},final_dev_nll\nA1,en-de,1,t,f,1,nan\n", "line 2: final_dev_nll: Input should be a finite", "nan"),
    (f"{HEADER}\n" + "A1,en-de,1,t,f,1\n" * 2, "A1 with seed 1 stands in these files 2 times", "twice"),
    (f"{HEADER}\nA1,en-de,1,t,f,1\nA2,en-fr,1,t,f,1\n", "on t en-de and t en-fr; judge each text", "two texts"),
    (f"{HEADER}\nA1,en-de,1,generated text,f,1\n", "cannot answer .*; use real text", "generated"),
    (f"{HEADER}\nA1,en-de,1,t,f,1,2,3\n", "a column without a heading: Input should be a valid number", "too long"),
]


@pytest.mark.parametrize(("text", "message", "name"), WRONG, ids=[name for *_, name in WRONG])
def test_other_files_are_one_clear_line(tmp_path: Path, text: str, message: str, name: str) -> None:
    path = tmp_path / "seeds.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"^[^\n]*{message}[^\n]*$"):
        read([path])


def test_the_command_prints_what_it_judged(tmp_path: Path, command_line: CommandLine) -> None:
    one = write(tmp_path / "one.csv", {"base": BASE, "D1": WORSE})
    other = write(tmp_path / "other.csv", {"A1": WORSE})
    done = command_line.here("workflows.cli", "claims", str(one), str(other))
    assert done.returncode == 0
    assert "2 claims hold, 0 fail, 0 are undecided, 10 were not judged." in done.stdout
    assert "base − D1: +0.200" in " ".join(done.stdout.split())
    for arguments in (["claims", str(tmp_path)], ["claims", str(one), "--margin", "0"]):
        assert command_line.here("workflows.cli", *arguments).returncode == 2


def test_published_runs_can_be_judged_again() -> None:
    """All files of docs/results but the one with curves, which is not of runs."""
    published = [path for path in Path("docs/results").glob("*.csv") if not path.stem.endswith("-dev-nll")]
    judged = {path.name: sum(bool(each.effects) for each in judge(read([path]))) for path in published}
    assert len(judged) == 4
    assert all(judged.values()), judged
