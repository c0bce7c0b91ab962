"""Table 4 end to end, on a few generated trees in the Wall Street Journal's format: the real stages, Tune, MLflow."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from tests.support.reproduced import Tracked, artifacts, written
from tests.support.tiny_profile import overrides, training
from tests.support.wsj_folder import make_silver, make_wsj
from workflows import reproduce_table4
from workflows.cli.reproduce import reproduce

TINY = overrides(
    {
        **training("recipes.parser", 6, budget_tokens=500),
        "vocabulary.size": 400,
        "recipes.parser.averaging.last": 1,
        "decoding.max_extra_tokens": 20,
        "decoding.beam_size": 2,
        "choice.dropouts": [0.0, 0.1],
        "choice.learning_rate_scales": [1.0],
        "choice.beam_sizes": [1, 2],
        "corpora.supervised.recombination.trees": 30,
    }
)
SEMI_SUPERVISED = ["pairs.semi-supervised.choice.dropouts=[0.1]", "corpora.semi-supervised.recombination.trees=20"]


@pytest.mark.usefixtures("ray_cluster")
def test_both_rows_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {
        "treebank": make_wsj(tmp_path / "wsj"),
        "silver": [make_silver(tmp_path / "silver.trees")],
        "profile": "treebank",
        "store": tmp_path / "runs",
    }
    both = [*TINY, *SEMI_SUPERVISED]
    reproduce(*reproduce_table4.main(overrides=both, **options))
    output = capsys.readouterr().out
    assert output.startswith("settings of profile treebank: trees of wsj; changed by ")
    folder, table = written(output)
    tables = {each["title"]: each["rows"] for each in table["tables"]}
    measured = [row["values"] for row in tables["Table 4"] if row["origin"] == "measured"]
    assert len(tables["Table 4"]) == 12 + 3
    assert [row["training"] for row in measured] == ["none", "trees of wsj only", "semi-supervised"]
    assert {(row["sentences"], row["valid"]) for row in measured} == {(12, 12)}
    assert 0 < measured[0]["f1"] < 100  # right-branching trees
    assert all("trees of wsj" in row["name"] for row in tables["Table 4"] if row["origin"] == "measured")
    reported = {(entry["what"], entry["here"]) for entry in table["differences"]}
    assert {
        ("training data", f"trees of wsj, {trees} trees, and {n} recombined of their constituents")
        for trees, n in ((240, 30), (300, 20))
    } <= reported
    assert ("symbol of a word", "names the word's tag") in reported

    # Chosen by F1 on the dev set: first the run, then the beam size
    for kind, dropouts in (("trees of wsj only", [0.0, 0.1]), ("semi-supervised", [0.1])):
        candidates = [row["values"] for row in tables["Chosen on the dev set"] if row["values"]["training"] == kind]
        assert [row["dropout"] for row in candidates] == dropouts
        (chosen,) = [row for row in candidates if row["chosen"]]
        assert chosen["f1"] == max(row["f1"] for row in candidates)
        beams = [row["values"] for row in tables["Beams on the dev set"] if row["name"] == kind]
        assert [row["beam_size"] for row in beams] == [1, 2]
        (beam,) = [row for row in beams if row["chosen"]]
        assert beam["f1"] == max(row["f1"] for row in beams)
        assert next(row["f1"] for row in beams if row["beam_size"] == 2) == chosen["f1"]
        (found,) = [row["values"] for row in tables["Malformed outputs"] if row["name"] == kind]
        assert found["repaired"] > 0  # without constraints, six updates give no tree
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert report.count('class="tree"') == 2 * 2 * 3  # gold and parse of three samples of each row
    assert "dev perplexity" in report

    tracked = Tracked(tmp_path / "runs", "table4")
    runs = {run.info.run_name: run for run in tracked.runs()}
    names = {"supervised dropout 0 rate 1", "supervised dropout 0.1 rate 1", "semi-supervised"}
    assert runs.keys() == {*names, "table4 treebank"}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    child = runs["supervised dropout 0.1 rate 1"]
    dev_f1 = next(row["values"]["f1"] for row in tables["Chosen on the dev set"] if row["name"] == child.info.run_name)
    assert child.data.metrics["f1.dev"] == dev_f1
    assert child.data.params["training.model.dropout"] == "0.1"
    sent = runs["table4 treebank"].data.metrics
    assert sent["f1.Transformer 1 layer trees of wsj trees of wsj only"] == measured[1]["f1"]
    assert sent["f1.Transformer 1 layer trees of wsj semi-supervised"] == measured[2]["f1"]

    before = artifacts(tmp_path / "runs")
    reproduce(*reproduce_table4.main(overrides=both, **options))
    assert artifacts(tmp_path / "runs") == before

    capsys.readouterr()
    del options["silver"]
    reproduce(*reproduce_table4.main(overrides=[*TINY, "choice.beam_sizes=[1]"], dev_f1=True, **options))
    _, table = written(capsys.readouterr().out)
    assert table["tables"][0]["rows"][-1]["values"]["training"] == "trees of wsj only"
    kinds = {name.rpartition("-")[0] for name in artifacts(tmp_path / "runs") - before}
    assert "training" not in kinds
    assert {"parser_choice", "tabulating", "dev_scores"} <= kinds
    runs_of_one = tracked.named("supervised dropout 0 rate 1")
    points = [tracked.client.get_metric_history(run.info.run_id, "dev_f1") for run in runs_of_one]
    assert [sorted(point.step for point in of_run) for of_run in points if of_run] == [[3, 6]]


@pytest.mark.usefixtures("ray_cluster")
def test_a_wrong_tree_of_the_test_set_is_found_before_anything_is_trained(tmp_path: Path) -> None:
    wsj = make_wsj(tmp_path / "wsj")
    (wrong,) = (wsj / "23").iterdir()
    wrong.write_text("(S (NP a b))\n")
    with pytest.raises(UserError, match=r"23/wsj_2301.mrg, line 1: the word 'b' is not alone in its bracket"):
        reproduce(*reproduce_table4.main(treebank=wsj, profile="treebank", overrides=TINY, store=tmp_path / "runs"))
    assert not [name for name in artifacts(tmp_path / "runs") if name.startswith(("training", ".making-training"))]
