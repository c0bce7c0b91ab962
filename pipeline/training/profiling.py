"""Profiles some updates of a run with torch.profiler (`TrainingSettings.profile_updates`).

Rank 0 writes two files to the run's folder, named after the requested updates: `profile-100-110.txt`, operators and
kernels by time, and `profile-100-110.json.gz`, a trace for https://ui.perfetto.dev or chrome://tracing.
"""

import gc
import gzip
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from pipeline.hardware import device_name
from pipeline.training.checkpoints import CheckpointWriter

log = logging.getLogger(__name__)

TABLE_ROWS = 60


class UpdateProfiler:
    """Profiles updates `updates[0]` to `updates[1]`, as far as they come after update `done`.

    A validation between two profiled updates is profiled too.
    """

    def __init__(
        self,
        updates: tuple[int, int] | None,
        done: int,
        device: str,
        writer: CheckpointWriter,
        spend: Callable[[float], None],
    ) -> None:
        """`writer` keeps the files. `spend` is called with the profiler's overhead, negative: it is no training time.

        Without `updates` nothing happens.
        """
        asked, self.last = updates or (0, 0)
        self.first = max(asked, done + 1)
        self.table, self.trace = (f"profile-{asked}-{self.last}.{kind}" for kind in ("txt", "json.gz"))
        self.device, self.writer, self.folder, self.spend = device, writer, writer.folder, spend
        self._on_gpu = device.startswith("cuda")
        self._profile: profile | None = None
        if self.last and done >= self.last and not (self.folder / self.table).exists():
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
            with self._overhead():
                os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints on start and stop
                activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
                self._profile = profile(activities=activities)
                self._profile.start()
        # torch's name of a profiling step: the table gets one row for all, and trace viewers know it.
        with record_function(f"ProfilerStep#{update}"):
            yield
        if update == self.last:
            with self._overhead():
                recorded = self._profile
                self.close()
                self._write(recorded)
                del recorded  # its events form cycles, and collecting them later would count as training
                gc.collect()

    def close(self) -> None:
        """Stops profiling after an error: a process can run only one profiler at a time."""
        if self._profile:
            self._profile.stop()
            self._profile = None

    @contextmanager
    def _overhead(self) -> Iterator[None]:
        if self._on_gpu:
            torch.cuda.synchronize(self.device)  # kernels of the updates before count
        began_s = time.monotonic()
        yield
        self.spend(began_s - time.monotonic())

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
            self.writer.keep_beside(file)
        log.warning(
            "updates %s to %s were profiled, which inflates train_s and lowers tokens_s. The run's folder has %s, the "
            "time by operator and kernel, and %s, a trace to open in https://ui.perfetto.dev or chrome://tracing",
            *(self.first, self.last, self.table, self.trace),
        )
