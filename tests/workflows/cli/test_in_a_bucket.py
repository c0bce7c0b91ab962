"""The commands `runs`, `doctor` and `clean` on a bucket."""

import pytest

from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.s3_server import CREDENTIALS, S3Server
from tests.support.tiny_dag import dangling, run_table


@pytest.fixture
def uri(at_s3: S3Server) -> str:
    """A store in which two workflows have run."""
    store = Store.at(f"{at_s3.bucket()}/runs")
    run_table(store, 1)
    run_table(store, 2)
    model = store.root / "table2" / "embedded" / "1" / "models" / "en-de-base"
    assert (model / "manifest.json").is_file()
    assert dangling(store.root) == []
    return store.uri


def test_runs_are_listed(uri: str, command_line: CommandLine) -> None:
    listed = command_line.here("workflows.cli", "runs", "--store", uri)
    assert listed.returncode == 0, listed.stderr
    assert "table2/embedded/2" in listed.stdout


def test_the_doctor_looks_at_the_bucket(uri: str, command_line: CommandLine) -> None:
    """Its locks are exclusive. For a missing bucket, one line says so without a secret."""
    examined = command_line.here("workflows.cli", "doctor", "--store", uri).stdout
    assert f"{uri} is writable, and its locks are exclusive" in " ".join(examined.split())
    missing = command_line.here("workflows.cli", "doctor", "--store", "s3://no-such-bucket")
    assert missing.returncode == 1
    assert "does not exist" in " ".join(missing.stdout.split())
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in missing.stdout
