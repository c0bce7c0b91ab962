"""`aiayn runs` and `aiayn compare` as their users see them."""

import json
from pathlib import Path

import pytest

from pipeline.store.store import LocalStore
from tests.support.command_line import CommandLine
from tests.support.tiny_runs import begun, make_run


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Two finished runs, and one that was interrupted."""
    made = LocalStore(tmp_path / "runs")
    make_run(made, "1")
    make_run(
        made, "2", models={"en-de base": {"decoding.beam_size": 8, "training.seed": 1}}, figures={"paper BLEU": 84}
    )
    with pytest.raises(KeyboardInterrupt), begun(made, "3", profile="multi30k"):
        raise KeyboardInterrupt
    return made


def test_runs_are_listed(store: LocalStore, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newest first, with state and figures, within 80 columns; the page is written; --json has all of it."""
    monkeypatch.setenv("COLUMNS", "80")
    done = command_line.in_process("workflows.cli", "runs", "--store", str(store.root))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("table2/")] == ["interrupted", "finished", "finished"]
    assert "paper BLEU 84" in done.stdout
    table = lines[: lines.index("")]
    assert max(map(len, table)) <= 80
    assert done.stdout.endswith(f"page: {store.root / 'index.html'}\n")
    assert "table2/multi30k/1" in (store.root / "index.html").read_text()
    told = json.loads(command_line.here("workflows.cli", "runs", "--store", str(store.root), "--json").stdout)
    assert [(run["name"], run["state"]) for run in told["runs"]] == [
        ("table2/multi30k/1", "interrupted"),
        ("table2/embedded/2", "finished"),
        ("table2/embedded/1", "finished"),
    ]


def test_two_runs_are_compared(store: LocalStore, command_line: CommandLine) -> None:
    """By name and without; the settings that differ and the figures side by side with their difference."""
    done = command_line.here("workflows.cli", "compare", "embedded/1", "embedded/2", "--store", str(store.root))
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["decoding.beam_size", "4", "8"] in rows
    assert ["en-de", "base", "sacrebleu.test", "82.50", "82.50"] in rows
    assert not any("training.seed" in row for row in rows)
    last = command_line.here("workflows.cli", "compare", "--store", str(store.root), "--json")
    told = json.loads(last.stdout)
    assert (told["one"], told["other"]) == ("table2/embedded/2", "table2/multi30k/1")
    same = command_line.here("workflows.cli", "compare", "embedded/1", "embedded/1", "--store", str(store.root))
    assert same.stdout.startswith("no setting differs between table2/embedded/1 and table2/embedded/1\n")


def test_mistakes_are_one_line(store: LocalStore, tmp_path: Path, command_line: CommandLine) -> None:
    """A run that is not there, a folder without runs, a model of a wrong name; listing nothing is no mistake."""
    root = str(store.root)
    for arguments, message in (
        (["compare", "embedded/9", "--store", root], "there is no run embedded/9 here; there are table2/multi30k/1, "),
        (["compare", "--store", str(tmp_path / "none")], "there are 0 runs here"),
        (["translate", f"{root}/table2/embedded/en-de-bas"], f"or one of {root}/table2/embedded/en-de-base"),
        (["parse", f"{root}/table2/embedded/x"], f"or one of {root}/table2/embedded/en-de-base"),
        (["average", f"{root}/table2/embedded/x", "--out", str(tmp_path / "out")], "table2/embedded/en-de-base"),
        (["export", "ctranslate2", f"{root}/table2/x", "--out", str(tmp_path / "out")], "table2/embedded/en-de-base"),
    ):
        done = command_line.here("workflows.cli", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert "no runs in" in command_line.here("workflows.cli", "runs", "--store", str(tmp_path / "none")).stdout
    assert not (tmp_path / "none").exists()
