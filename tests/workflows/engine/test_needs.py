"""workflows.engine.needs: obstacles to starting Ray, with remedies that work."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from workflows.cli import doctor
from workflows.engine.needs import MAX_SOCKET_BYTES, SOCKET_IN_SESSION, obstacles

LONGEST = MAX_SOCKET_BYTES - len(SOCKET_IN_SESSION) - 1
VARIABLES = ("RAY_TMPDIR", "TMPDIR", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
STARTS = """
import ray
from workflows.engine.cluster import cluster
def step():
    from ray.train import ControllerError
    return "started"
with cluster(None):
    print(ray.get(ray.remote(step).remote()))
"""


def _folder_of(n_bytes: int, parent: str = "/tmp") -> str:
    return f"{parent}/{'x' * (n_bytes - len(parent) - 1)}"


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    ("variables", "problem", "remedy"),
    [
        ({}, "", ""),
        ({"TMPDIR": _folder_of(LONGEST)}, "", ""),
        ({"TMPDIR": _folder_of(LONGEST + 1)}, f"at most {LONGEST} bytes", "set RAY_TMPDIR to a short, writable path"),
        ({"TMPDIR": _folder_of(200), "RAY_TMPDIR": "/tmp"}, "", ""),
        ({"RAY_TMPDIR": "/proc"}, "Ray's folder /proc is not writable", "set RAY_TMPDIR to a short"),
        ({"HOME": "/proc/none"}, "/proc/none/.ray/auth_token is not writable", "RAY_AUTH_TOKEN to a secret"),
        ({"HOME": "/proc/none", "RAY_AUTH_TOKEN": 32 * "x"}, "", ""),
        ({"HOME": "/proc/none", "RAY_AUTH_MODE": "disabled"}, "", ""),
        ({"RAY_AUTH_TOKEN_PATH": "/no/token"}, "RAY_AUTH_TOKEN_PATH is /no/token", "correct or unset it"),
    ],
)
def test_what_ray_needs(
    variables: dict[str, str], problem: str, remedy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = list(obstacles())
    assert len(found) == bool(problem)
    for text, what_to_do in found:
        assert problem in text
        assert remedy in what_to_do
    assert next(one.verdict for one in doctor.ray("local")) == ("fails" if problem else "ok")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_home")
def test_bytes_must_fit_into_the_folders(tmp_path: Path) -> None:
    """An empty folder fits on a full disk, too. Here files may only have a thousand bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        problems, (store, *_) = dict(obstacles()), doctor.output(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert problems["Ray's folder /tmp is not writable (File too large)"].endswith("on a disk with space")
    assert (store.verdict, store.text) == ("fails", f"{tmp_path} is not writable (File too large)")


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of other users")
def test_a_user_without_a_home_is_told() -> None:
    # What is imported later might be in a folder that this user may not read.
    code = "import encodings.idna, os, workflows.engine.needs as needs; os.setuid(54_321); print(*needs.obstacles())"
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True)
    assert "neither HOME nor an entry in /etc/passwd" in done.stdout, done.stderr


@pytest.mark.ray
def test_ray_starts_where_nothing_is_in_its_way() -> None:
    """The longest valid path, without a home folder but with a token. A step may import what training needs."""
    folder = _folder_of(LONGEST, f"/tmp/{os.getpid()}")
    os.makedirs(folder)
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment = {**inherited, "TMPDIR": folder, "HOME": "/proc/none", "RAY_AUTH_TOKEN": 32 * "x"}
    environment["RAY_TRAIN_V2_ENABLED"] = "0"
    try:
        done = subprocess.run([sys.executable, "-c", STARTS], env=environment, capture_output=True, text=True)
    finally:
        subprocess.run(["rm", "-r", f"/tmp/{os.getpid()}"], check=True)
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
