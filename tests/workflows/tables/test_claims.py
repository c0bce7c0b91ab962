"""The claims page: all claims in the paper's order, four tallies, the tables' claims, and the differences."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.store.artifact import Context
from pipeline.training.speed import ModelSpeed, TrainingSpeed, TrainingSpeedRecord
from tests.support.html_reader import Reader, assert_asks_for_nothing_outside
from workflows.claims.claim import KINDS, Effect, Evidence, Judged, Printed
from workflows.claims.competitors import MODELS, comparable
from workflows.claims.every_claim import CLAIMS
from workflows.claims.identities import IDENTITIES
from workflows.engine.dag import to_artifact
from workflows.reports.claims import judge
from workflows.tables.claims import FILE, ClaimsArtifact, Sources, Trial, compute, evidence
from workflows.tables.differences import Difference
from workflows.tables.judged import claims_table, effect_text, tallies
from workflows.tables.measurements import Translation
from workflows.tables.table import Results, Table
from workflows.tables.table3 import Table3Artifact

JUDGED = Judged(
    "6.2",
    "dropout is very helpful in avoiding over-fitting",
    "Table 3",
    "trained",
    "holds",
    0.003,
    (Effect("base − D1", "nats", 0.1594, 3, 0.1, 0.2, 0.0, None, 0.1593), Effect("base − D1", "BLEU", -0.001, 3)),
)


def test_without_evidence_nothing_is_judged() -> None:
    """Each claim has a row with what would fill it. The paper's own arithmetic is there anyway."""
    results = compute(Sources(), Evidence())
    assert [claim.text for claim in results.claims] == [claim.text for claim in CLAIMS]
    verdicts = {claim.verdict for claim in results.claims}
    assert verdicts == {"not run", "needs real text", "needs WMT14", "needs WSJ"}
    assert all(claim.lacks for claim in results.claims)
    shown = claims_table(results.claims)
    assert any("holds: 28.4 − 26.36 = +2.04 BLEU" in str(row.values["in the paper"]) for row in shown.rows)
    assert any("to judge it: python -m workflows.reproduce_table3" in str(row.values) for row in shown.rows)
    assert {claim.section for claim in compute(Sources(), Evidence(), ["3", "6.2"]).claims} == {
        *("3.2.1", "3.2.2", "3.5", "6.2")
    }


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear"])
def test_competitors_are_compared_over_timed_seconds(
    schedule: Any, cell: Callable[..., Translation], tmp_path: Path
) -> None:
    """Each seed takes another round's durations. A schedule that ends with its run is not used for shorter budgets."""
    trials, speeds = [], []
    for model, rate, update_s in (("base", 0.7, 0.5), ("recurrent", 1.4, 0.25), ("convolutional", 0.35, 1.0)):
        for seed in (1, 2):
            trained = cell("en-de", model, split="dev", seed=seed)
            record = to_artifact(trained.training).load()
            optimizer = replace(
                record.settings.optimizer, warmup_steps=100, learning_rate_scale=rate, schedule=schedule
            )
            settings = record.settings.model_copy(update={"optimizer": optimizer})
            to_artifact(trained.training).write(record.model_copy(update={"settings": settings}))
            trials.append(Trial(model, f"competitors {model} seed {seed}", trained, trained.perplexity))
        rounds_s = (update_s, 1.5 * update_s)
        speeds.append(ModelSpeed(architecture=model, parameters=1, update_s=rounds_s, tokens_s={8: (2.0, 3.0)}))
    for name in ("speed", "page"):
        (tmp_path / name).mkdir()
    speed = TrainingSpeed(tmp_path / "speed").write(
        TrainingSpeedRecord(
            models=tuple(speeds), budget_tokens=1, device_name="", threads=1, dtype="float32", torch_version="2"
        )
    )
    found = evidence(Sources(competitors=trials, training_speed=speed, data=("real text",))).found
    assert {*found["training_speed"]} == {*MODELS}
    if schedule == "linear":
        assert "competitors" not in found
        return
    curves = found["competitors"]
    assert comparable(curves)
    assert [curve.seconds[-1] for curve in curves["recurrent"]] == [400 * 0.25, 400 * 0.375]
    assert curves["base"][0].flop[-1] == trials[0].evaluation.run.counted_flop
    alone = Sources(training_speed=speed, data=("real text",))
    assert "competitors" not in evidence(alone).found
    page = (judge(Context(tmp_path / "page"), alone).folder / FILE).read_text()
    assert "tokens-s-over-length.csv" in page
    failed = evidence(Sources(competitors=trials[1:], training_speed=speed)).found["competitors"]
    assert len(failed["base"]) == 1


def test_tallies_are_never_added_up() -> None:
    """A sentence per kind. For comparisons, the verdict is that on the paper's values."""
    printed = Judged("6.1", "", "Table 2", "printed", "needs WMT14", printed=Printed("fails", "38.1 − 39.2"))
    timed = Judged("3.2.1", "", "timings", "timing", "holds")
    control = Judged("negative control", "", "negative control", "control", "undecided")
    assert tallies([JUDGED, JUDGED, printed, timed, control]) == [
        "Timings on this machine: 1 holds.",
        "Claims that need trained models: 2 hold.",
        "Comparisons of printed values: 1 fails.",
        "Negative controls: 1 undecided.",
    ]


def test_a_kind_without_verdicts_has_no_tally() -> None:
    """Nor is a comparison without the paper's values."""
    nothing = Judged("6.1", "", "Table 2", "printed", "needs WMT14")
    assert tallies([JUDGED, nothing]) == ["Claims that need trained models: 1 holds."]


def test_effects_are_written_with_interval_and_unit() -> None:
    """With the unit's digits, beside the paper's. Zero has no sign."""
    (row,) = claims_table([JUDGED]).rows
    assert row.group == "6.2"
    written = {unit: effect_text(Effect("", unit, 1.23456, 3)) for unit in ("accuracy", "share", "F1", "BLEU")}
    assert [*written.values()] == [": +1.235 accuracy", ": +1.23 share", ": +1.2 F1", ": +1.23 BLEU"]
    (certain,) = claims_table([replace(JUDGED, effects=(), here="3 of 4", p=0.0)]).rows
    assert (certain.values["n"], certain.values["p"], certain.values["effect here [95%]"]) == ("", "", "3 of 4")
    (alone,) = claims_table([replace(JUDGED, effects=(replace(JUDGED.effects[1], n=7),), p=None)]).rows
    assert (alone.values["n"], alone.values["p"]) == ("7", "")
    assert row.values["effect here [95%]"] == "base − D1: +0.159 [+0.100, +0.200] nats\nbase − D1: +0.00 BLEU"
    assert (row.values["in the paper"], row.values["n"], row.values["p"]) == ("+0.159 nats", "3", "0.003")
    assert effect_text(Effect("additive / scaled", "×", 3.071, 5, 3.0, 3.1)) == "additive / scaled: 3.07 [3.00, 3.10] ×"


def test_the_terminal_has_the_claims_where_they_are_the_only_table() -> None:
    """Without the paper's values, n and p, which do not fit. Below another table, only the tallies."""
    beneath, only = claims_table([JUDGED]), claims_table([JUDGED], on_terminal=True)
    assert (beneath.on_terminal, only.on_terminal) == (False, True)
    shown = [column.heading for column in only.columns if column.on_terminal]
    assert shown == ["where", "claim", "effect here [95%]", "verdict"]


def test_the_page(tmp_path: Path) -> None:
    """It has the tables' claims, the tallies, the table's differences, the command and the warnings."""
    (tmp_path / "table").mkdir()
    (tmp_path / "page").mkdir()
    table = Table3Artifact(tmp_path / "table")
    differs = Difference("updates", "100,000", "1,100", ("EN-DE base",))
    table.write(Results([Table("Table 3", [], [])], [differs], [], {}, [JUDGED]))
    context = Context(tmp_path / "page", warnings=["read en-de: train.en is not the <published> file"])
    results = judge(context, Sources(tables=[table]), ["6.2"]).load()
    html = (tmp_path / "page" / "claims.html").read_text()
    assert_asks_for_nothing_outside(html)
    text = Reader(html).text
    assert "Claims that need trained models: 1 holds, 6 need real text." in " ".join(text.split())
    assert "base − D1: +0.159 [+0.100, +0.200] nats" in text
    assert "Table 3: EN-DE base" in text
    assert context.warnings[0] in text
    assert JUDGED in results.claims
    assert results.metrics["trained: holds"] == 1
    assert {name.partition(":")[0] for name in results.metrics} <= {*KINDS}


def test_a_page_of_an_earlier_version_is_still_listed(tmp_path: Path) -> None:
    """Its rows are not read, but it is not an error."""
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [{"section": "6.2"}], "differences": [], "notes": ["a"]}))
    results = ClaimsArtifact(tmp_path).load()
    assert (results.tables, results.notes) == ((), ["a"])


def test_each_identity_names_its_test() -> None:
    """The tests exist. On the page they are listed in one line, and not counted."""
    tests = Path(__file__).parents[2]
    for identity in IDENTITIES:
        file, _, function = identity.test.rpartition("::")
        path = tests.parent / file if file else tests / "pipeline/complexity/test_identities.py"
        assert f"def {function}(" in path.read_text(), identity
    notes = compute(Sources(), Evidence()).notes
    assert notes[0].startswith("Identities that hold, by tests: position i depends only on outputs before i (§3.1); ")
    assert "wavelengths end at 9,647 · 2π for d_model = 512, not at 10,000 · 2π (§3.5)" in notes[1]
    assert notes[1].startswith("Statements that are not exact")
