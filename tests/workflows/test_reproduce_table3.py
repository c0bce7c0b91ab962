import shutil
from pathlib import Path

import pytest
import typer

from pipeline.artifacts import EvaluationSet
from pipeline.settings import DecodingSettings, TrainingSettings
from tests.support.reproduced import Tracked, written
from tests.support.tiny_profile import TABLE_3, toml
from workflows import reproduce_table3, stages
from workflows.cli.options import Common
from workflows.cli.reproduce import reproduce, requested
from workflows.engine.dag import in_order
from workflows.profiles.loading import load_profile
from workflows.profiles.translation import EMBEDDED
from workflows.reproduce_table3 import trials_of
from workflows.tables.measured import Cell
from workflows.tables.table3_rows import rows

MEASURED = ("base seed 1", "base seed 2", "B1")
CONFIG = toml({**TABLE_3, "grid.rows.F1.learning_rate_scale": 1e30})


@pytest.mark.usefixtures("ray_cluster")
def test_rows_then_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured rows appear beside printed ones, a diverging row has its reason, and a second call trains nothing.

    Nor does a third after the table's training runs are removed: it follows its plan.
    """
    config = tmp_path / "rows.toml"
    config.write_text(CONFIG)
    with pytest.raises(typer.Exit) as ended_by:
        reproduce(*reproduce_table3.main(config=config, asked="base,B1,F", store=tmp_path))
    assert ended_by.value.exit_code == 1
    output, errors = capsys.readouterr()
    assert "error: F1 failed: update 2 (epoch 0): the loss is nan" in errors
    assert "error: 1 of 4 models failed; rerun the same command to retry them" in errors
    folder, table = written(output)
    rows = {row["name"]: row["values"] for row in table["tables"][0]["rows"]}
    assert list(rows) == ["base", "B1", "F1"]
    assert rows["F1"]["perplexity"] == "failed"
    assert "lower optimizer.learning_rate_scale" in rows["F1"]["reason"]
    assert rows["B1"]["change"] == "d_k 4"
    base, b1 = rows["base"], rows["B1"]
    assert (b1["perplexity.paper_delta"], b1["bleu.paper_delta"]) == (0.24, -0.7)
    assert b1["perplexity.delta"] == pytest.approx(b1["perplexity"] - base["perplexity"])
    assert base["parameters"] - b1["parameters"] == 3 * 32 * 2 * 8 * (16 - 4)  # W_Q and W_K of three attentions
    assert "perplexity.paper" not in rows["F1"]
    assert (base["seeds"], b1["seeds"]) == (2, 1)
    assert b1["has_converged"] is not None
    files = {path.name for path in folder.iterdir()} - {"1", "newest"}
    assert files == {"manifest.json", "report.html", "table3.json", "table3.md", "seeds.csv"}

    tracked = Tracked(tmp_path, "table3")
    runs = {run.info.run_name: run for run in tracked.runs()}
    assert runs.keys() == {*MEASURED, "F1", "table3 embedded"}
    assert runs["B1"].data.params["training.model.d_k"] == "4"
    assert runs["B1"].data.metrics["paper_bleu.dev"] == b1["paper_bleu"]
    assert runs["B1"].data.metrics["parameters"] == b1["parameters"]
    assert [runs[name].info.status for name in (*MEASURED, "F1")] == ["FINISHED"] * 3 + ["FAILED"]
    ended = [runs[name].info.end_time / 1000 for name in (*MEASURED, "F1")]
    assert min(ended) < (folder / "table3.json").stat().st_mtime  # with its trial, not after all of them
    assert "EN-DE, generated text: lengths" in (folder / "report.html").read_text()

    trained = {path.name for path in (tmp_path / "store").glob("training-*")}
    reproduce(*reproduce_table3.main(config=config, asked="base,B1", store=tmp_path))
    assert {path.name for path in (tmp_path / "store").glob("training-*")} == trained
    assert "train en-de" not in capsys.readouterr().out
    children = tracked.runs("tags.mlflow.parentRunId != ''")
    assert sorted(run.info.run_name for run in children) == sorted([*MEASURED, *MEASURED, "F1"])  # of two tables

    for name in trained:
        shutil.rmtree(tmp_path / "store" / name)
    reproduce(*reproduce_table3.main(config=config, asked="base,B1", store=tmp_path, plan=True))
    assert "\n0 stages to run" in capsys.readouterr().out
    reproduce(*reproduce_table3.main(config=config, asked="base,B1", store=tmp_path))
    assert not list((tmp_path / "store").glob("training-*"))
    assert "stages to run" not in capsys.readouterr().out


TEXT = stages.prepared(EMBEDDED, "en-de")


def trials(seeds: int, base_seeds: int, first: int = 1) -> dict[str, Cell]:
    grid = EMBEDDED.grid.model_copy(update={"training": EMBEDDED.grid.training.model_copy(update={"seed": first})})
    return trials_of(TEXT, rows(grid, "base,A1"), seeds, EMBEDDED.decoding, base_seeds=base_seeds)


def test_more_seeds_leave_what_was_trained_with_one() -> None:
    """The first seed's run is that of a single-seed table, so it is cached. Base gets the greater number of seeds."""
    of_both = [trials(1, base_seeds).items() for base_seeds in (1, 3)]
    single, several = ({name: trial.training.fingerprint for name, trial in found} for found in of_both)
    assert several["base seed 1"] == single["base"]
    assert several["A1"] == single["A1"]
    assert [*several] == ["base seed 1", "base seed 2", "base seed 3", "A1"]
    assert len(set(several.values())) == 4
    assert [*trials(2, 1, first=5)] == ["base seed 5", "base seed 6", "A1 seed 5", "A1 seed 6"]


def test_the_text_s_report_is_on_what_the_rows_use() -> None:
    """Their batches, and the dev set: a broken test set, which no row reads, costs no row."""
    profile = load_profile("embedded", overrides=["grid.training.budget_tokens=600"]).for_pair("en-de").for_grid()
    request = requested("table3", profile, Common())
    report = reproduce_table3.reproduction(profile, "en-de", None, 1, request).reports["en-de"]
    (batches,) = (each for each in report.arguments if isinstance(each, TrainingSettings))
    assert batches.budget_tokens == 600
    assert [step.label for step in in_order([report]) if step.stage.makes is EvaluationSet] == ["generate en-de dev"]


def test_a_trial_decodes_with_the_fewest_workers_of_an_elastic_run() -> None:
    profile = load_profile("embedded", overrides=["grid.training.workers=2:3"]).for_pair("en-de")
    (trial,) = trials_of(TEXT, rows(profile.grid, "A1"), 1, profile.decoding).values()
    searches = [value for value in trial.hypotheses.arguments if isinstance(value, DecodingSettings)]
    assert [search.workers for search in searches] == [2]
