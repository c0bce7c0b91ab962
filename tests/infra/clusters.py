"""Container clusters for tests, prepared by `make test-clusters` and driven by the commands of infra/README.md."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.chaos.workflow_process import SETTINGS
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
PREPARED = ROOT / "build" / "clusters"
"""Output folder of prepare.sh."""
PODMAN = {
    "CONTAINERS_CONF": str(PREPARED / "containers.conf"),
    "CONTAINERS_STORAGE_CONF": str(PREPARED / "storage.conf"),
    "PATH": f"{PREPARED / 'bin'}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
}
TIMEOUT_S = 600
"""Limit for each step, generous enough for a busy machine."""
UPDATES = 1500
SMALL = ["--pairs", "en-de", "--models", "base"] + [
    word
    for name, value in {**SETTINGS, "recipes.base.training.updates": UPDATES}.items()
    if not name.startswith("recipes.big")
    for word in ("--set", f"{name}={value}")
]
"""Options that reduce Table 2 to one training run of two workers, about a minute long."""

requires_clusters = pytest.mark.skipif(
    os.geteuid() != 0 or not (PREPARED / "ready").is_file(),
    reason="needs root, podman and images: make test-clusters prepares them",
)


def typed(heading: str) -> list[str]:
    text = (ROOT / "infra" / "README.md").read_text(encoding="utf-8")
    section = re.split(r"^#+ ", text.split(f"## {heading}\n")[1], flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


class Terminal:
    def __init__(self, folder: Path, **variables: str) -> None:
        self._folder, self._variables = folder, {**os.environ, **PODMAN, **variables}
        for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI"):
            self._variables.pop(name, None)
        self.log = folder / "log"

    def start(self, line: str) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            return subprocess.Popen(["bash", "-c", line], cwd=self._folder, env=self._variables, **streams)

    def run(self, line: str) -> str:
        assert self.start(line).wait(TIMEOUT_S) == 0, f"{line}\n{self.printed}"
        return self.printed

    @property
    def printed(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def reach(self, update: int, command: subprocess.Popen[bytes]) -> None:
        """Waits until a command's training run reaches an update, as read from its log lines or progress bar."""

        def reached() -> bool:
            seen = re.findall(r"update ([\d,]+) |([\d,]+)/[\d,]+ updates", self.printed)
            return any(int("".join(one).replace(",", "")) >= update for one in seen)

        until(reached, TIMEOUT_S, lambda: self.printed, command)


def podman(*arguments: str) -> str:
    result = subprocess.run(
        ["podman", *arguments], env={**os.environ, **PODMAN}, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert result.returncode == 0, f"{arguments}: {result.stderr}"
    return result.stdout


def kill(container: str) -> None:
    """Kills a container's first process and so all others, like the kernel's out-of-memory killer."""
    psutil.Process(int(podman("inspect", "--format", "{{.State.Pid}}", container))).kill()


def succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(["podman", *command], env={**os.environ, **PODMAN}, capture_output=True).returncode == 0
