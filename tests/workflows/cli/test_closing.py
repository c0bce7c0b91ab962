"""workflows.cli.closing: the last lines of a workflow can be pasted, in the working directory and outside of it."""

import shlex
from pathlib import Path

import pytest

from pipeline.store.store import LocalStore
from tests.support.tiny_dag import make_artifact, run_table
from workflows.cli.closing import closing_lines
from workflows.names import named_folder


def test_lines_for_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report, models, the command that translates, MLflow's command; the model's name is understood."""
    monkeypatch.chdir(tmp_path)
    run = run_table(LocalStore(tmp_path / "runs"), 1)
    report, models, translate, curves = closing_lines(run, "translate", "mlflow ui")
    assert report == "report: runs/table2/embedded/report.html"
    assert (tmp_path / report.removeprefix("report: ")).is_file()
    assert models == "models: table2/embedded/en-de-base"
    assert translate.startswith("translate: ")
    *command, name = shlex.split(translate.removeprefix("translate: "))
    assert command[-1] == "translate"
    assert named_folder("average", Path(name), "model.safetensors").name.startswith("averaging-")
    assert curves == "curves: mlflow ui"


def test_lines_for_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names carry the folder; a workflow without models has no line for them, one with many names the chosen first."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store = LocalStore(tmp_path / "my runs")
    run = run_table(store, 1)
    for name, folder in (("supervised", "parser_choice-1"), *((f"s{i}", f"averaging-{i}") for i in range(5))):
        made = make_artifact(store, folder, {"model.safetensors": folder})
        (run / "models" / name).symlink_to(made)
    _, models, parse, _ = closing_lines(run, "parse", "")
    name = f"{tmp_path}/my runs/table2/embedded/supervised"
    assert models.startswith(f"models: {name}, ")
    assert models.endswith(" and 3 more")
    assert shlex.split(parse)[-2:] == ["parse", name]
    assert named_folder("average", Path(name), "model.safetensors").name == "parser_choice-1"
    assert [line.split(":")[0] for line in closing_lines(run, "", "")] == ["report", "curves"]
