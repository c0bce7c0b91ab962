"""The parts that all commands of `aiayn bench` share: the device, the status line, Ctrl-C, ratios."""

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from statistics import median
from typing import Any, Literal

from rich.console import Console

from pipeline.errors import UserError
from workflows.benchmarks.load import Clocks, load_since
from workflows.console.command import INTERRUPTED


def is_installed(package: str) -> bool:
    """Returns True if the package can be imported."""
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def find_device(name: str) -> Literal["cpu", "gpu"]:
    """Resolves --device; auto means a GPU if torch finds one. Raises UserError if the GPU asked for is not there."""
    import torch

    has_gpu = torch.cuda.is_available()
    if name == "gpu" and not has_gpu:
        raise UserError("--device gpu: torch finds no GPU here; use cpu or auto")
    return "gpu" if has_gpu and name != "cpu" else "cpu"


def with_status_line(measure: Callable[[Callable[[str], object]], dict[str, Any]]) -> dict[str, Any]:
    """Runs `measure`, showing its status lines on a terminal. Ctrl-C ends the program.

    Returns its result with the load of the machine meanwhile; the processes of the benchmark must have ended.
    """
    began = Clocks.read()
    try:
        with Console(stderr=True).status("starting") as status:
            return measure(status.update) | {"load": load_since(began)}
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def ratio(name: str, ours_by_round: Sequence[float], peers_by_round: Sequence[float]) -> dict[str, Any]:
    """Returns the ratio of the median rates and its range over the rounds; None if either side has no rates."""
    if not (ours_by_round and peers_by_round):
        return {name: None, f"{name}_spread": None}
    by_round = [ours / peers for ours, peers in zip(ours_by_round, peers_by_round, strict=True)]
    return {name: median(ours_by_round) / median(peers_by_round), f"{name}_spread": [min(by_round), max(by_round)]}
