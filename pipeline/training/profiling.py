"""Profiles some updates of a run with torch.profiler (`TrainingSettings.profile_updates`).

Rank 0 writes two files to the run's folder, named after the requested updates: `profile-100-110.txt`, operators and
kernels by time, and `profile-100-110.json.gz`, a trace for https://ui.perfetto.dev or chrome://tracing.
"""

import gc
import gzip
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from pipeline.hardware import device_name

TABLE_ROWS = 60


class UpdateProfiler:
    """Profiles updates `updates[0]` to `updates[1]`, as far as they come after update `done`.

    Call `begin` and `end` around each update. Both return the profiler's overhead in seconds, which must not count as
    training time. A validation between two profiled updates is profiled too.
    """

    def __init__(
        self,
        updates: tuple[int, int] | None,
        done: int,
        device: str,
        folder: Path,
        keep: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """`keep` is called with the name of each file written to `folder`. Without `updates` nothing happens."""
        asked, self.last = updates or (0, 0)
        self.first = max(asked, done + 1)
        self.table, self.trace = (f"profile-{asked}-{self.last}.{kind}" for kind in ("txt", "json.gz"))
        self.device, self.folder, self.keep, self.warn = device, folder, keep, warn
        self._on_gpu = device.startswith("cuda")
        self._profile: profile | None = None
        self._update: record_function | None = None
        if self.last and done >= self.last and not (folder / self.table).exists():
            warn(f"no update is profiled: profile_updates is {asked}:{self.last}, and the run continues after {done}")

    def begin(self, update: int) -> float:
        """Starts profiling if `update` is the first to be profiled."""
        if not self.first <= update <= self.last:
            return 0.0
        overhead_s = 0.0 if self._profile else self._start()
        # torch's name of a profiling step: the table gets one row for all, and trace viewers know it.
        self._update = record_function(f"ProfilerStep#{update}")
        self._update.__enter__()
        return overhead_s

    def end(self, update: int) -> float:
        """Stops profiling if `update` is the last to be profiled, and writes the files."""
        if not (self._profile and self._update):
            return 0.0
        self._update.__exit__(None, None, None)
        self._update = None
        if update < self.last:
            return 0.0
        self._wait_for_device()
        stopped_s, recorded = time.monotonic(), self._profile
        self.close()
        self._write(recorded)
        del recorded  # its events form cycles, and collecting them later would count as training
        gc.collect()
        return time.monotonic() - stopped_s

    def close(self) -> None:
        """Stops profiling after an error: a process can run only one profiler at a time."""
        if self._profile:
            self._profile.stop()
            self._profile = None

    def _start(self) -> float:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints on start and stop
        self._wait_for_device()  # else kernels of earlier updates would be profiled
        began_s = time.monotonic()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        self._profile = profile(activities=activities)
        self._profile.start()
        return time.monotonic() - began_s

    def _write(self, recorded: profile) -> None:
        key = f"self_{'cuda' if self._on_gpu else 'cpu'}_time_total"
        rows = recorded.key_averages().table(sort_by=key, row_limit=TABLE_ROWS, max_name_column_width=80)
        heading = f"updates {self.first} to {self.last}, rank 0, {device_name(self.device)}, torch {torch.__version__}"
        (self.folder / self.table).write_text(f"{heading}\n{rows}", encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "trace.json"
            recorded.export_chrome_trace(str(plain))  # its own compression takes longer than the updates
            with plain.open("rb") as source, gzip.open(self.folder / self.trace, "wb", compresslevel=5) as target:
                shutil.copyfileobj(source, target, 1 << 20)
        for file in (self.table, self.trace):
            self.keep(file)
        self.warn(
            f"updates {self.first} to {self.last} were profiled, which inflates train_s and lowers tokens_s. The run's "
            f"folder has {self.table}, the time by operator and kernel, and {self.trace}, a trace to open in "
            "https://ui.perfetto.dev or chrome://tracing"
        )

    def _wait_for_device(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize(self.device)
