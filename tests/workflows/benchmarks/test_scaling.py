"""`aiayn bench scale`: a real run with two workers, what waiting and exchanging are, and mistakes."""

import json
import time
from pathlib import Path

import pytest
import torch

from pipeline.training.rendezvous import join
from tests.support.command_line import CommandLine
from tests.support.tiny_training import start_processes
from workflows.benchmarks.scaling.command import _free_port
from workflows.benchmarks.scaling.workers import TimedGroup

LATE_S = 0.4
TINY = ["bench", "scale", "--vocabulary-size=300", "--batch-tokens=400", "--micro-batches=2", "--device=cpu"]


def test_two_workers_train_as_one_does(command_line: CommandLine) -> None:
    """The parts of an update make up the whole, one worker exchanges nothing, and the tokens are the same."""
    done = command_line.here(
        "workflows.cli", *TINY, "--workers=1,2", "--updates=2", "--rounds=2", "--precision=float32", "--json"
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    alone, together = result["layouts"]
    assert (alone["workers"], together["workers"]) == (1, 2)
    assert (alone["waiting_s"], alone["exchanging_s"]) == (0, 0)
    assert min(together["waiting_s"], together["exchanging_s"]) > 0
    for layout in (alone, together):
        parts_s = layout["computing_s"] + layout["waiting_s"] + layout["exchanging_s"]
        assert parts_s == pytest.approx(layout["update_s"], rel=0.3)
        assert 400 <= 2 * layout["tokens_s"] * layout["update_s"] <= 800
    assert result["exchanged_bytes"] % 4 == 0
    assert result["exchanged_bytes"] > 4 * 5_000_000  # the layers of the small size


def wait_for_the_late(rank: int, port: int, folder: Path) -> None:
    """Runs one of two workers, of which the second comes late to the sum."""
    join("127.0.0.1", port, rank, 2, "gloo", 60)
    group = TimedGroup(rank, 2)
    group.sum(torch.zeros(1))  # the first sum connects the two
    group.spent.waiting_s = group.spent.exchanging_s = 0.0
    time.sleep(LATE_S * rank)
    total = group.sum(torch.tensor([rank + 1.0]))
    (folder / str(rank)).write_text(json.dumps([total.item(), group.spent.waiting_s, group.spent.exchanging_s]))


def test_waiting_is_told_from_exchanging(tmp_path: Path) -> None:
    """Who comes first waits for the other; neither takes that for the time of the sum."""
    start_processes(wait_for_the_late, (_free_port(), tmp_path), 2)
    (first, first_waited_s, first_sent_s), (late, late_waited_s, late_sent_s) = (
        json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)
    )
    assert first == late == 3
    assert first_waited_s > 0.7 * LATE_S
    assert max(late_waited_s, first_sent_s, late_sent_s) < 0.5 * LATE_S


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--workers=3", "--workers 3: an update has only 2 micro-batches"),
        ("--workers=0,1", "write different numbers from 1 on"),
        ("--workers=two", "write different numbers from 1 on"),
        ("--exchange=int8", "--exchange int8: choose one of float32, bfloat16"),
    ],
)
def test_mistakes_are_one_line(command_line: CommandLine, option: str, message: str) -> None:
    """The line names the option."""
    done = command_line.here("workflows.cli", *TINY, option)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
