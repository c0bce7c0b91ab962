"""Runs the workflow as a user would, the command of Table 2 in a process of its own, and watches its progress."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
TRAINING = {
    "updates": 120,
    "budget_tokens": 1200,
    "workers": 2,
    "checkpoint_updates": 6,
    "validation_updates": 30,
    "log_updates": 4,
    "dtype": "float32",  # by default it depends on which is faster, as measured at the beginning
    "model.n_layers": 1,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.dropout": 0.1,
}
SETTINGS = {
    "corpora.en-de.train_pairs": 1600,
    "corpora.en-de.shard_pairs": 400,
    "corpora.en-de.dev_pairs": 40,
    "corpora.en-de.test_pairs": 160,
    "vocabulary.size": 400,
    "decoding.workers": 2,
    "decoding.dtype": "float32",  # like training's
    "decoding.max_extra_tokens": 20,
    **{f"recipes.{model}.training.{name}": value for model in ("base", "big") for name, value in TRAINING.items()},
    "recipes.big.training.model.d_model": 48,
    "recipes.big.training.model.dropout": 0.3,
    "recipes.big.training.workers": 1,
}
"""A training of two workers and one of a single worker; everything else is small, but in several parts."""
NOT_A_SIGN = ("ray", ".locks")
"""Folders in the store that change without progress: Ray Train's own, the locks."""


class Workflow:
    """The command on one store; when started again, it continues."""

    def __init__(self, address: str, store: Path) -> None:
        self.store = store
        self.starts = 0
        self.started_s = self.progress_s = time.monotonic()
        self._command = [sys.executable, "-m", "workflows.reproduce_table2", "--pairs", "en-de"]
        self._command += ["--address", address, "--store", str(store)]
        self._command += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        self._seen: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        store.mkdir(parents=True)

    def start(self) -> None:
        self.starts += 1
        self.started_s = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def log(self) -> Path:
        return self.store / f"driver-{self.starts}.log"

    @property
    def printed(self) -> str:
        return f"{self.log}:\n{self.log.read_text(errors='replace')[-3000:]}"

    @property
    def status(self) -> int | None:
        return self._process.poll()

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    def look(self) -> None:
        names = set()
        # Unlike Path.rglob, os.walk tolerates folders that vanish meanwhile.
        for folder, folders, files in os.walk(self.store / "store"):
            folders[:] = [name for name in folders if name not in NOT_A_SIGN]
            names |= {os.path.join(folder, name) for name in files}
        if names - self._seen:
            self._seen |= names
            self.progress_s = time.monotonic()

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
