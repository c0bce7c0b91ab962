"""Records events, line by line, on the screen and in a file."""

import time
from pathlib import Path


class Journal:
    """`journal("text")` writes a line with the seconds since the journal was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened_s = time.monotonic()

    def __call__(self, text: str) -> None:
        line = f"{self.seconds:7.1f} s  {text}"
        print(line, flush=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._opened_s
