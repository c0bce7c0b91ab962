"""`aiayn doctor`: what it says of this machine, of a cluster that does not answer and of locks."""

import errno
import fcntl
import shutil
import socket
from pathlib import Path

import pytest
import ray

from tests.support.command_line import CommandLine
from tests.support.s3_server import CREDENTIALS, S3Server
from workflows.cli import doctor


def test_a_line_for_each_check(tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    done = command_line.here("workflows.cli", "doctor", "--store", str(tmp_path / "runs"))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line[9:24].strip() for line in lines] == ["libraries", "gpu", "cpus", "ray start", "store", "file locks"]
    assert {line.split()[0] for line in lines} <= {"ok", "warning"}
    assert not list(tmp_path.iterdir())


def test_failures_set_the_status(tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    (tmp_path / "file").write_text("")
    done = command_line.here("workflows.cli", "doctor", "--store", str(tmp_path / "file"))
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("fails")]
    assert line.split()[1] == "store"
    assert line.endswith("choose another folder with --store")
    wrong = command_line.here("workflows.cli", "doctor", "--stoer", "x")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_a_cluster_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    (option,) = doctor.ray(f"127.0.0.1:{port}")
    assert option.verdict == "fails"
    assert f"no Ray cluster answers at --address 127.0.0.1:{port} ([Errno" in option.text
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    (variable,) = doctor.ray(None)
    assert f"no Ray cluster answers at RAY_ADDRESS=127.0.0.1:{port} ([Errno" in variable.text
    assert "--address" not in variable.text
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    (dashboard,) = doctor.ray(None)
    assert "(a URL; set the HOST:PORT of `ray start --head --port`)" in dashboard.text


@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_of_other_versions_is_told_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    address, here = ray.get_runtime_context().gcs_address, ray.__version__
    assert [one.verdict for one in doctor.ray(address)] == ["ok"]
    monkeypatch.setattr(ray, "__version__", "2.1.0")
    (other,) = doctor.ray(address)
    assert other.verdict == "fails"
    assert f"cluster was started with: Ray: {here} Python: " in other.text
    assert "this machine was started with: Ray: 2.1.0 Python: " in other.text


def test_a_container_s_small_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(doctor, "MIN_SHARED_BYTES", shutil.disk_usage(tmp_path).total + 1)
    assert [(one.name, one.verdict) for one in doctor.ray("local")][-1] == ("shared memory", "warning")


def test_locks_that_do_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: CommandLine) -> None:
    """Some file systems grant every lock; none of that kind can be mounted by a test. Others refuse every lock."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert [one.verdict for one in doctor.output(tmp_path)] == ["ok", "fails"]

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert [one.verdict for one in doctor.output(tmp_path)] == ["ok", "fails"]
    done = command_line.here("workflows.reproduce_table2", "--store", str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "guard: this file system has no file locks (No locks available); choose another folder" in done.stderr


def test_the_locks_of_a_bucket_and_a_missing_bucket(at_s3: S3Server, command_line: CommandLine) -> None:
    uri = f"{at_s3.bucket()}/runs"
    examined = command_line.here("workflows.cli", "doctor", "--store", uri).stdout
    assert f"{uri} is writable, and its locks are exclusive" in " ".join(examined.split())
    missing = command_line.here("workflows.cli", "doctor", "--store", "s3://no-such-bucket")
    assert missing.returncode == 1
    assert "does not exist" in " ".join(missing.stdout.split())
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in missing.stdout
