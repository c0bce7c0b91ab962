"""A stopwatch for the parts of a run's start. Does not import torch, so that it can time that import."""

import time


class Laps(dict[str, float]):
    """Seconds by part; each lap lasts from the end of the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.began_s = self._ended_s = time.monotonic()

    def end(self, part: str) -> None:
        """Ends a lap of the named part."""
        now_s = time.monotonic()
        self[part] = self.get(part, 0.0) + now_s - self._ended_s
        self._ended_s = now_s
