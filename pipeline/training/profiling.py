"""Profiles some updates of a run with torch.profiler (`TrainingSettings.profile_updates`).

Rank 0 writes two files to the run's folder, named after the requested updates: `profile-100-110.txt`, operators and
kernels by time, and `profile-100-110.json.gz`, a trace for https://ui.perfetto.dev or chrome://tracing.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from pipeline.hardware import device_name
from pipeline.training.checkpoints import CheckpointWriter

log = logging.getLogger(__name__)

TABLE_ROWS = 60


class UpdateProfiler:
    """Profiles updates `updates[0]` to `updates[1]`, and a validation between them, as far as they follow `done`."""

    def __init__(self, updates: tuple[int, int] | None, done: int, device: str, writer: CheckpointWriter) -> None:
        """`writer` keeps the files."""
        asked, self.last = updates or (0, 0)
        self.first = max(asked, done + 1)
        self.table, self.trace = (f"profile-{asked}-{self.last}.{kind}" for kind in ("txt", "json.gz"))
        self.device, self.writer = device, writer
        self._profile: profile | None = None
        if self.last and done >= self.last and not (writer.folder / self.table).exists():
            log.warning(
                "no update is profiled: profile_updates is %s:%s, and the run continues after %s",
                *(asked, self.last, done),
            )

    @contextmanager
    def around(self, update: int) -> Iterator[None]:
        """Profiles its body, an update, if that is asked; after the last one, writes the files."""
        if not self.first <= update <= self.last:
            yield
            return
        if not self._profile:
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints on start and stop
            on_gpu = [ProfilerActivity.CUDA] if self.device.startswith("cuda") else []
            self._profile = profile(activities=[ProfilerActivity.CPU, *on_gpu])
            self._profile.start()
        # torch's name of a profiling step: the table gets one row for all, and trace viewers know it.
        with record_function(f"ProfilerStep#{update}"):
            yield
        if update == self.last:
            recorded = self._profile
            self.close()
            self._write(recorded)

    def close(self) -> None:
        """Stops profiling after an error: a process can run only one profiler at a time."""
        if self._profile:
            self._profile.stop()
            self._profile = None

    def _write(self, recorded: profile) -> None:
        key, folder = f"self_{'cuda' if self.device.startswith('cuda') else 'cpu'}_time_total", self.writer.folder
        rows = recorded.key_averages().table(sort_by=key, row_limit=TABLE_ROWS, max_name_column_width=80)
        heading = f"updates {self.first} to {self.last}, rank 0, {device_name(self.device)}, torch {torch.__version__}"
        (folder / self.table).write_text(f"{heading}\n{rows}", encoding="utf-8")
        recorded.export_chrome_trace(str(folder / self.trace))
        for file in (self.table, self.trace):
            self.writer.keep_beside(file)
        log.warning(
            "updates %s to %s were profiled, which inflates train_s and lowers tokens_s. The run's folder has %s, the "
            "time by operator and kernel, and %s, a trace to open in https://ui.perfetto.dev or chrome://tracing",
            *(self.first, self.last, self.table, self.trace),
        )
