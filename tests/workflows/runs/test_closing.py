"""workflows.runs.closing: the last lines of a workflow can be pasted, in the working directory and outside of it."""

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.store.store import LocalStore
from tests.support.tiny_runs import STEPS, make_artifact, make_run
from workflows.runs.closing import aiayn, closing_lines
from workflows.runs.names import named_folder
from workflows.runs.record import StepRecord


def _model(label: str) -> StepRecord:
    stage = "parser_choice.choose" if label.startswith("choose") else "averaging.average"
    return replace(STEPS[1], label=label, stage=stage, folder=f"{stage}-{label}".replace(" ", "-"))


def test_lines_for_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report, models, the command that translates, the list and MLflow's command; the model's name is understood."""
    monkeypatch.chdir(tmp_path)
    store = LocalStore(tmp_path / "runs")
    report, models, translate, runs, curves = closing_lines(store, make_run(store), "mlflow ui")
    assert report == "report: runs/table2/embedded/report.html"
    assert (tmp_path / report.removeprefix("report: ")).is_file()
    assert models == "models: table2/embedded/en-de-base"
    assert translate.startswith("translate: ")
    *command, name = shlex.split(translate.removeprefix("translate: "))
    assert command[-1] == "translate"
    assert named_folder("average", Path(name), "model.safetensors").name == "averaging-1"
    assert runs.startswith("runs: runs/index.html, ")
    assert runs.endswith(" runs")
    assert curves == "curves: mlflow ui"


def test_lines_for_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names carry the folder; a workflow without models has no line for them, one with many names the first."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store = LocalStore(tmp_path / "my runs")
    chosen = [*STEPS, *(_model(f"average supervised {i}") for i in range(5)), _model("choose supervised")]
    make_artifact(store, chosen[-1].folder, {"model.safetensors": "the best weights"})
    _, models, parse, runs, _ = closing_lines(store, make_run(store, steps=chosen, model_command="parse"), "")
    name = f"{tmp_path}/my runs/table2/embedded/supervised"
    assert models.startswith(f"models: {name}, ")
    assert models.endswith(" and 3 more")
    assert shlex.split(parse)[-2:] == ["parse", name]
    assert named_folder("average", Path(name), "model.safetensors").name == chosen[-1].folder
    assert runs.endswith(f" runs --store '{tmp_path}/my runs'")
    report, runs, _ = closing_lines(store, make_run(store, "2", model_command=""), "")
    assert (report.split(":")[0], runs.split(":")[0]) == ("report", "runs")


def test_the_command_is_that_of_this_installation() -> None:
    """What is printed answers."""
    done = subprocess.run([*shlex.split(aiayn()), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "one command per stage" in done.stdout or "runs the stages" in done.stdout
