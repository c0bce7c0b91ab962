"""Shared fixtures: the devices, a folder of text, and one Ray cluster per session."""

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import torch

from tests.support.parallel_text import write_parallel_text

if TYPE_CHECKING:
    from tests.support.command_line import CommandLine
    from tests.support.s3_server import S3Server

# On a busy machine, the default time limit of 0.2 s an example would fail by chance.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

for name in ("COLUMNS", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):  # pytest-xdist sets the first, for outputs' width
    os.environ.pop(name, None)
RAY_TMPDIR = os.environ.get("RAY_TMPDIR")
NO_RAY = "/dev/null/a test that is not marked ray starts Ray"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests of the shared Ray cluster, and of training processes. Others are marked in place.

    With several processes (`-n 2 --dist loadgroup`) one runs all of these, so there is one cluster. The others take the
    rest, file by file.
    """
    for item in items:
        for fixture, mark in (("ray_cluster", "ray"), ("two_workers", "spawns")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
        group = "ray" if item.get_closest_marker("ray") else item.path.name
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """In a test that is not marked `ray` or `slow`, its fixtures and processes, Ray finds no place for its files.

    Each begins with one thread, whatever an earlier one has set: on tiny matrices two only wait for each other, a
    hundred times as long as they compute where another process has the second core.
    """
    torch.set_num_threads(1)
    folder = RAY_TMPDIR if item.get_closest_marker("ray") or item.get_closest_marker("slow") else NO_RAY
    if folder is None:
        os.environ.pop("RAY_TMPDIR", None)
    else:
        os.environ["RAY_TMPDIR"] = folder


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """In a script's background (`make test &`) SIGINT is ignored, and child processes would inherit this."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """Each kind of device in turn: the test runs on the CPU and, if torch finds one, on a GPU."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    return request.param


@pytest.fixture(scope="session")
def data() -> Path:
    folder = os.environ.get("AIAYN_DATA")
    if not folder:
        pytest.skip("AIAYN_DATA names no folder of real text")
    return Path(folder)


@pytest.fixture(scope="session")
def parallel_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder AIAYN_DATA or, if unset, a folder with the same layout and generated text."""
    folder = os.environ.get("AIAYN_DATA")
    return Path(folder) if folder else write_parallel_text(tmp_path_factory.mktemp("parallel_text"))


@pytest.fixture
def command_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "CommandLine":
    from tests.support.command_line import CommandLine

    return CommandLine(capfd, monkeypatch)


@pytest.fixture(scope="session")
def s3() -> Iterator["S3Server"]:
    from tests.support.s3_server import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture
def at_s3(s3: "S3Server", monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "S3Server":
    """The server, set in this process's environment. Copies of artifacts are in `tmp_path / "cache"`."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AIAYN_CACHE", str(tmp_path / "cache"))
    return s3


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray cluster of two CPUs, shared by the session."""
    import ray

    from workflows.engine.cluster import set_local_variables
    from workflows.engine.joining import loopback_only

    set_local_variables()
    # Workers must import the tests' functions.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with loopback_only():
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()
