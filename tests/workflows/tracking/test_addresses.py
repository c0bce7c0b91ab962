"""workflows.tracking.addresses: MLflow's address, shown without users and passwords."""

import shlex
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from workflows.tracking.addresses import (
    default_uri,
    is_malformed,
    public_address,
    reason_of,
    sqlite_file,
    sqlite_uri,
    ui_command,
)


def test_address_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment takes precedence. The command can be pasted and serves only this machine."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert default_uri(tmp_path) == "http://tracking:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    command = ui_command(default_uri(tmp_path / "my runs"))
    assert f"--backend-store-uri 'sqlite:///{tmp_path}/my runs/mlflow.db' --host 127.0.0.1" in command


@pytest.mark.parametrize(
    "name", ["runs", "my runs", "wh?at", "a#b", "per%20cent", "50 %", "ü", "it's", 'a"b', "d@t", "[bold]", "a;b&c=d"]
)
def test_a_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    """SQLAlchemy and this project parse the file's path from its address. It has no password to remove."""
    uri = sqlite_uri(tmp_path / name / "mlflow.db")
    url = make_url(uri)
    assert (Path(url.database or ""), dict(url.query)) == (tmp_path / name / "mlflow.db", {})
    assert sqlite_file(uri) == tmp_path / name / "mlflow.db"
    assert public_address(uri) == uri
    assert shlex.split(ui_command(uri))[-3] == uri
    assert sqlite_file("http://host:5000") is None


@pytest.mark.parametrize("password", ["secret", "se@cret", "se/cret", "secret#1"])
def test_no_part_of_a_password_is_told(password: str) -> None:
    """Not even with characters that should have been escaped, nor in an error that quotes it."""
    uri = f"http://me:{password}@tracking:5000"
    assert public_address(uri) == "http://tracking:5000"
    for error in (OSError(5, f"{password} is wrong"), ConnectionError(f"no answer from {uri}, as me:{password}")):
        assert "cret" not in reason_of(error, uri)


def test_malformed_addresses() -> None:
    """A host and, if any, a valid port. Other kinds of address are left to MLflow."""
    wrong = ["http://", "http://:5000", "https://host:port", "http://me:pass/word@host:5000", "http://host:99999"]
    assert all(map(is_malformed, wrong))
    assert not any(map(is_malformed, ["http://host", "http://me:secret@host:5000", "sqlite:////tmp/a.db", "host:5000"]))
