"""workflows.cli.closing: the last lines of a workflow can be pasted."""

import shlex
from pathlib import Path

import pytest

from pipeline.store.store import Store
from tests.support.tiny_dag import run_table
from workflows.cli.closing import closing_lines
from workflows.names import named_folder


def test_lines_for_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report, models, the command that translates, MLflow's command; the model's name is understood."""
    monkeypatch.chdir(tmp_path)
    run = run_table(Store(tmp_path / "runs"), 1)
    report, models, translate, curves = closing_lines(run, "report.html", "translate", "mlflow ui")
    assert report == "report: runs/table2/embedded/report.html"
    assert (tmp_path / report.removeprefix("report: ")).is_file()
    assert models == "models: table2/embedded/en-de-base"
    assert translate.startswith("translate: ")
    *command, name = shlex.split(translate.removeprefix("translate: "))
    assert command[-1] == "translate"
    assert named_folder("average", Path(name), "model.safetensors").name.startswith("averaging-")
    assert curves == "curves: mlflow ui"
