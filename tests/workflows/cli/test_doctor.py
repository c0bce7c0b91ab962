"""`aiayn doctor` as its users see it."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine


def test_a_line_for_each_check(tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails here, and nothing is made; --json has the same."""
    for name in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    store = ["--store", str(tmp_path / "runs")]
    done = command_line.here("workflows.cli", "doctor", *store)
    assert done.returncode == 0
    told = json.loads(command_line.here("workflows.cli", "doctor", "--json", *store).stdout)
    assert told["ok"] is True
    lines = done.stdout.splitlines()
    assert [line[9:24].strip() for line in lines] == [check["name"] for check in told["checks"]]
    assert [line.split()[0] for line in lines] == [check["verdict"] for check in told["checks"]]
    assert {"python", "torch", "gpu", "memory", "ports", "file locks", "mlflow"} <= {x["name"] for x in told["checks"]}
    assert all(bool(check["remedy"]) == (check["verdict"] != "ok") for check in told["checks"])
    assert not list(tmp_path.iterdir())


def test_what_fails_is_the_exit_status(tmp_path: Path, command_line: CommandLine) -> None:
    """1 where something fails, with what to do in its line; 2 for a wrong option."""
    (tmp_path / "file").write_text("")
    done = command_line.here("workflows.cli", "doctor", "--store", str(tmp_path / "file"))
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("fails")]
    assert line.split()[1] == "store"
    assert line.endswith("choose another folder with --store")
    wrong = command_line.here("workflows.cli", "doctor", "--stoer", "x")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
