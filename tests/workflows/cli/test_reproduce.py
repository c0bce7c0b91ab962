"""workflows.cli.reproduce: a workflow's last lines can be pasted."""

import sys
from pathlib import Path

import pytest

from pipeline.store.store import Store
from tests.support.tiny_dag import run_table
from workflows.cli.reproduce import aiayn, closing_lines, shown
from workflows.runs import Run


def test_lines_for_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "runs")
    run = Run.read(store.root, run_table(store, 1))
    report, models, translate, curves = closing_lines(run, store, "translate", "aiayn curves x")
    assert report == "report: runs/table2/embedded/report.html"
    assert (tmp_path / report.removeprefix("report: ")).is_file()
    assert models == "models: table2/embedded/en-de-base"
    assert translate == f"translate: {aiayn()} translate table2/embedded/en-de-base"
    assert curves == "curves: aiayn curves x"


def test_the_command_of_this_installation_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(sys.executable).parent
    assert (here / "aiayn").is_file()
    monkeypatch.setenv("PATH", str(here))
    assert aiayn() == "aiayn"
    (tmp_path / "aiayn").write_text("#!/bin/sh\n")
    (tmp_path / "aiayn").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert aiayn() == str(shown(here / "aiayn"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python 3"))
    assert aiayn() == f"'{sys.executable}' -m workflows.cli"
