"""What a check has found."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "fails"]


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    name: str
    verdict: Verdict
    """warning: the project works, but more slowly, or not for all there is; fails: something does not work."""
    found: str
    remedy: str = ""
    """What to do; empty where it is ok."""
