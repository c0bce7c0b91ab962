"""Functions that are already imported do what the mutant's do; what ran at import is left to a new import."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.live import swaps

SOURCE = """
from functools import cache
FEW = 3

def half(n, by=2):
    return n / by

@cache
def doubled(n):
    return (lambda m: m * 2)(n)

def adder(n):
    def add(m):
        return m + n
    return add

add_one = adder(1)

class Box:
    size = 4

    @property
    def area(self):
        return self.size * self.size
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    """SOURCE, imported."""
    path = tmp_path / "boxes.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("boxes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        ("n / by", "n * by", [12, 12, 7, 16]),
        ("m * 2", "m * 5", [3, 30, 7, 16]),
        ("m + n", "m - n", [3, 12, 5, 16]),
        ("self.size * self.size", "self.size + self.size", [3, 12, 7, 8]),
    ],
)
def test_live_functions_are_swapped(module: ModuleType, before: str, after: str, value: list[int]) -> None:
    """Plain, cached, nested and method: those that other modules hold, too."""
    half, doubled, add_one, box = module.half, module.doubled, module.add_one, module.Box()
    assert module.__file__ is not None
    for function, code in swaps(Path(module.__file__), SOURCE, SOURCE.replace(before, after)):
        function.__code__ = code
    assert [half(6), doubled(6), add_one(6), box.area] == value


@pytest.mark.parametrize(("before", "after"), [("FEW = 3", "FEW = 4"), ("by=2", "by=3"), ("size = 4", "size = 5")])
def test_what_runs_at_import_cannot_be_swapped(module: ModuleType, before: str, after: str) -> None:
    """Constants, defaults and attributes need the module anew."""
    assert module.__file__ is not None
    assert swaps(Path(module.__file__), SOURCE, SOURCE.replace(before, after)) == []
