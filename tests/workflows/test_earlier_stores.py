"""Stores that earlier versions have written: models translate, runs are shown, and a plan says what is old."""

import json
import shlex
import tarfile
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from workflows.engine.plan import INPUT

STORES = sorted(Path(__file__).with_name("stores").glob("*.tar.xz"))
"""Each has a finished cell of Table 2 by the version of its date."""


@pytest.fixture(params=STORES, ids=lambda path: path.name.partition(".")[0])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def test_what_an_earlier_version_has_written_is_used(store: Path, command_line: CommandLine) -> None:
    """Another stage's version is a reason to build again; nothing else is, and nothing is an error or to be deleted."""
    run = json.loads((store / "table2" / "embedded" / "1" / "run.json").read_text())
    typed = run["command"].partition("reproduce_")[2]
    done = command_line.here("workflows.cli", *shlex.split(typed), "--plan", "--json")
    assert done.returncode == 0, done.stderr
    reasons = {step["label"]: step["why"] for step in json.loads(done.stdout)["steps"] if step["state"] != "cached"}
    known = ("built by version", INPUT, "the source has changed")
    assert all(why.startswith(known) for why in reasons.values()), reasons
    commands = {"runs": "table2/embedded/1", "results table2/embedded --out page.md": "page.md", "clean": "nothing"}
    for typed, shown in commands.items():
        done = command_line.here("workflows.cli", *typed.split())
        assert (done.returncode, done.stderr) == (0, "")
        assert shown in done.stdout
    done = command_line.here("workflows.cli", "translate", "table2/embedded/en-de-base", text="A dog runs .\n")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
