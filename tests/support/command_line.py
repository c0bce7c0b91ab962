"""Commands as users see them: exit status and both streams, in a separate process or in this one."""

import io
import subprocess
import sys
from typing import NamedTuple

import pytest

from workflows.cli import main
from workflows.cli.console import run_app
from workflows.cli.reproduce import app_of
from workflows.experiments import EXPERIMENTS

APPS = {"workflows.cli": main.app, **{each.module: app_of(each.module) for each in EXPERIMENTS.values()}}


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class CommandLine:
    def __init__(self, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capture = capture
        self._monkeypatch = monkeypatch

    def here(self, module: str, *arguments: str, text: str = "") -> Done:
        """Runs a command in this process, with the slow libraries imported, unless a test needs a separate process."""
        self._capture.readouterr()
        with self._monkeypatch.context() as patch:
            name = module.replace("workflows.cli", "aiayn")
            patch.setattr(sys, "argv", [name, *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))
            with pytest.raises(SystemExit) as ended:
                run_app(APPS[module], name)
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, *self._capture.readouterr())

    def in_process(self, module: str, *arguments: str, text: str = "") -> Done:
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)
