"""A real `mlflow server` on 127.0.0.1 that can be paused, killed and started again at the same address."""

import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.tiny_training import free_port
from tests.support.waiting import until

STARTS_S = 120.0


class TrackingServer:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.uri = f"http://127.0.0.1:{free_port()}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.kill()
        folder = self._folder.absolute()
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1"]
        command += ["--port", self.uri.rpartition(":")[2], "--backend-store-uri", f"sqlite:///{folder}/server.db"]
        command += ["--serve-artifacts", "--artifacts-destination", f"{folder}/artifacts"]
        # MLflow's variables are for clients.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # saves eight unused processes
        log = self._folder / "server.log"
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=file, stderr=file, start_new_session=True
            )
        until(self._answers, STARTS_S, log.read_text, self._process)

    def kill(self) -> None:
        if self._process:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stops all its processes until `resume`: it accepts connections without answering."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.uri}/health", timeout=5).close()
        except OSError:
            return False
        return True
