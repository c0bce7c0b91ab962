"""The display of a running workflow."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from tests.support.tiny_stages import WRITE, WriteSettings
from workflows.engine import progress
from workflows.engine.plan import Reason
from workflows.engine.progress import View

STEP = WRITE("train en-de base", WriteSettings(text="a"))
PROGRESS = {"done": 50, "total": 200, "unit": "updates", "tokens_s": 5120.4, "loss": 2.314}


def _show(watcher: View) -> None:
    watcher.begin({STEP: Reason("built with text b (here a)")}, [])
    watcher.started(STEP)
    watcher.event(STEP, {"waiting": "no GPU is free"})
    watcher.event(STEP, {"starting": "compiling, 9 s after its start"})
    watcher.event(STEP, {"warning": "4 of 8 GPUs would idle"})
    for done in (10, 20, 30):  # the first one is where it resumed; a rate takes two more
        watcher.event(STEP, {**PROGRESS, "done": done})
    watcher.event(STEP, PROGRESS)
    samples = [{"source": "A dog.", "reference": "Ein Hund.", "translation": "Hund."}]
    watcher.event(STEP, {"metrics": {"dev_perplexity": 12.345, "samples": samples}, "step": 50})
    watcher.idle()
    watcher.finished(STEP, "9,000 training pairs")
    watcher.end()


def test_without_a_terminal_each_event_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_PROGRESS_S", 0.0)
    file = io.StringIO()
    _show(View(Console(file=file, width=120)))
    text = file.getvalue()
    assert "\x1b" not in text
    lines = text.rstrip("\n").split("\n")
    assert [line for line in lines if "50/200 updates  5,120 tokens/s  loss 2.31" in line and "left" in line]
    assert [line for line in lines if "update 50  dev perplexity 12.35" in line]
    assert lines[1] == "train en-de base again: built with text b (here a)"
    assert lines[3].endswith("train en-de base             waiting: no GPU is free")
    assert lines[4].endswith("train en-de base             starting: compiling, 9 s after its start")
    assert lines[5].endswith("train en-de base             warning: 4 of 8 GPUs would idle")
    assert lines[-2].endswith("train en-de base             A dog. -> Hund.")
    assert lines[-1].endswith("9,000 training pairs")
    assert len(lines) == 13


def test_on_a_terminal_a_bar_is_redrawn() -> None:
    file = io.StringIO()
    _show(View(Console(file=file, width=120, force_terminal=True, legacy_windows=False)))
    text = file.getvalue()
    assert "warning: 4 of 8 GPUs would idle" in text
    assert "50/200 updates" in text
    assert "5,120 tokens/s" in text
    assert "started" not in text
    assert re.search(r"1/1  train en-de base +done in 0 s  9,000 training pairs", text.split("50/200")[-1])


def test_a_model_that_fails_has_a_line() -> None:
    """Its line has the reason. A step that another model continues may still finish."""
    file = io.StringIO()
    view = View(Console(file=file, width=120))
    training = replace(STEP, stage=replace(STEP.stage, trains=True))
    view.begin({training: Reason("never built")}, [])
    view.started(training)
    view.failed("en-de base", [training], "the loss is nan")
    view.event(training, PROGRESS)
    view.finished(training, "9,000 training pairs")
    view.end()
    assert re.search(r"0/1 +en-de base +failed: the loss is nan\n", file.getvalue())
    assert re.search(r"1/1 +train en-de base +done", file.getvalue())
