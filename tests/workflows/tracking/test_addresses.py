"""workflows.tracking.addresses: MLflow's address, shown without users and passwords."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from workflows.tracking.addresses import default_uri, public_address, reason_of, sqlite_uri


def test_the_environment_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert default_uri(tmp_path) == "http://tracking:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert default_uri(tmp_path / "my runs") == f"sqlite:///{tmp_path}/my runs/mlflow.db"


@pytest.mark.parametrize(
    "name", ["my runs", "wh?at", "a#b", "per%20cent", "50 %", "ü", "it's", 'a"b', "d@t", "[bold]", "a;b&c=d"]
)
def test_a_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    """SQLAlchemy parses the file's path from its address, which has no password to remove."""
    uri = sqlite_uri(tmp_path / name / "mlflow.db")
    url = make_url(uri)
    assert (Path(url.database or ""), dict(url.query)) == (tmp_path / name / "mlflow.db", {})
    assert public_address(uri) == uri


@pytest.mark.parametrize("password", ["secret", "se@cret", "se/cret", "secret#1"])
def test_no_part_of_a_password_is_shown(password: str) -> None:
    """Not even with characters that should have been escaped, nor in an error that quotes it."""
    uri = f"http://me:{password}@tracking:5000"
    assert public_address(uri) == "http://tracking:5000"
    for error in (OSError(5, f"{password} is wrong"), ConnectionError(f"no answer from {uri}, as me:{password}")):
        assert "cret" not in reason_of(error, uri)
