"""Changes the code that computes, one small change at a time, and tells which changes no test notices.

    python -m tests.mutation.run --changes 200 --seed 1 --only model/loss.py --results changes.jsonl

A copy of the project is changed, not the project. Each change is tested in a process forked from one that has imported
torch, by the files in TESTS (without the tests that start Ray), quickest test first, up to the first failure. Results
are appended to the file, and changes that it has already are not tried again, so a long run can be cut into short ones;
beside it stands how long each test takes.
"""

import argparse
import fnmatch
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.changes import Change, changes

ROOT = Path(__file__).parents[2]
TABLES = ("tests/workflows/tables", "tests/workflows/test_paper.py")
TESTS: Mapping[str, Sequence[str]] = {
    "model/config.py": ("tests/model", "tests/workflows/test_fingerprints.py", *TABLES),
    "model/parameters.py": ("tests/workflows/tables",),
    "model/*.py": ("tests/model",),
    "pipeline/evaluation/averaging.py": ("tests/pipeline/evaluation/test_averaging.py",),
    "pipeline/evaluation/costs.py": ("tests/pipeline/evaluation/test_costs.py", "tests/workflows/test_paper.py"),
    "pipeline/evaluation/perplexity.py": ("tests/pipeline/evaluation/test_perplexity.py",),
    "pipeline/evaluation/scoring.py": ("tests/pipeline/evaluation/test_scoring.py",),
    "pipeline/text/corpus_statistics.py": ("tests/pipeline/text/test_corpus_statistics.py",),
    "pipeline/hardware.py": ("tests/pipeline/test_hardware.py", "tests/pipeline/evaluation/test_costs.py"),
    "workflows/paper.py": (*TABLES, "tests/workflows/forecast"),
    "workflows/tables/*.py": TABLES,
    "workflows/forecast/*.py": ("tests/workflows/forecast",),
}
"""Modules that compute figures, and the tests that should notice a change; the first pattern that fits counts."""
LIBRARIES = "torch numpy scipy.stats pydantic hypothesis rich.table sacrebleu sacremoses safetensors.torch pyarrow"
"""What is imported before the processes fork."""
SURVIVED = ""


def modules() -> dict[str, Sequence[str]]:
    """Returns the modules that are changed, with their tests."""
    found: dict[str, Sequence[str]] = {}
    for pattern, tests in TESTS.items():
        for path in sorted(ROOT.glob(pattern)):
            if path.name != "__init__.py":
                found.setdefault(str(path.relative_to(ROOT)), tests)
    return found


class Observer:
    """A pytest plugin: leaves out the tests on Ray, sorts the others by time, and keeps the first failure."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.known_s, self.seconds, self.failure = seconds, dict[str, float](), SURVIVED

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sorts the tests."""
        items[:] = [item for item in items if "ray_cluster" not in getattr(item, "fixturenames", ())]
        items.sort(key=lambda item: self.known_s.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up the time of a test and notes its failure."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failure = self.failure or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes that a file of tests could not be imported."""
        if report.failed:
            self.failure = self.failure or f"{report.nodeid}, when imported"


class Copy:
    """A copy of the project, in which changes are tested."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seconds = folder, dict[str, float]()
        for name in ("model", "pipeline", "workflows", "tests", "docs", "examples"):
            shutil.copytree(ROOT / name, folder / name)
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile"):
            shutil.copy2(ROOT / name, folder)

    def change(self, module: str, source: str) -> None:
        """Writes a module."""
        (self.folder / module).write_text(source, encoding="utf-8")

    def test(self, tests: Sequence[str], limit_s: float) -> dict[str, Any]:
        """Runs some tests in a forked process; returns the first failure and the seconds of each test."""
        result, output = self.folder / "result.json", self.folder / "output.txt"
        result.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            self._test_here(tests, result, output)
        stop_s, ended = time.monotonic() + limit_s, False
        try:
            while not ended and time.monotonic() < stop_s:
                time.sleep(0.01)
                ended = os.waitpid(child, os.WNOHANG)[0] == child
        finally:
            if not ended:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if not result.exists():
            return {"failure": "the process died" if ended else f"no end within {limit_s:.0f} s", "seconds": {}}
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    def _test_here(self, tests: Sequence[str], result: Path, output: Path) -> None:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with output.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.chdir(self.folder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[:] = [str(self.folder), *(place for place in sys.path if place not in ("", str(ROOT)))]
        sys.dont_write_bytecode = True
        observer = Observer(self.seconds)
        pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests], plugins=[observer])
        result.write_text(json.dumps({"failure": observer.failure, "seconds": observer.seconds}))
        os._exit(0)


def run(copy: Copy, chosen: Sequence[tuple[str, Change]], results: Path, stop_s: float) -> None:
    """Tests the chosen changes that have no result yet, and appends theirs; starts none after `stop_s`."""
    mapped = modules()
    known = {key(one) for one in read(results)}
    chosen = [(module, change) for module, change in chosen if key(described(module, change)) not in known]
    seconds = results.with_suffix(".seconds.json")
    if not seconds.exists():
        unchanged = copy.test(sorted({test for tests in mapped.values() for test in tests}), limit_s=600)
        if unchanged["failure"]:
            sys.exit(f"{unchanged['failure']} fails without any change:\n{(copy.folder / 'output.txt').read_text()}")
        seconds.write_text(json.dumps(unchanged["seconds"]))
    copy.seconds = json.loads(seconds.read_text())
    for module, change in chosen:
        if time.monotonic() > stop_s:
            break
        total_s = sum(s for test, s in copy.seconds.items() if test.startswith(tuple(mapped[module])))
        started_s = time.monotonic()
        copy.change(module, change.source)
        found = copy.test(mapped[module], limit_s=20 + 3 * total_s)
        shutil.copy2(ROOT / module, copy.folder / module)
        line = described(module, change) | {
            "killer": found["failure"],
            "seconds": round(time.monotonic() - started_s, 1),
        }
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def described(module: str, change: Change) -> dict[str, Any]:
    """Returns a change as it stands in the results."""
    line, column = change.place
    return {"module": module, "line": line, "column": column} | {"before": change.before, "after": change.after}


def key(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what tells a change from the others."""
    return tuple(one[name] for name in ("module", "line", "column", "before", "after"))


def read(results: Path) -> list[dict[str, Any]]:
    """Reads the results so far."""
    return [json.loads(line) for line in results.read_text("utf-8").splitlines()] if results.exists() else []


def report(found: Sequence[Mapping[str, Any]]) -> str:
    """Writes a line for each module, how many of how many changes were noticed, and one for each that was not."""
    lines = []
    for module in sorted({one["module"] for one in found}):
        here = [one for one in found if one["module"] == module]
        lines.append(f"{module}: {sum(one['killer'] != SURVIVED for one in here)} of {len(here)}")
    lines.append(f"all: {sum(one['killer'] != SURVIVED for one in found)} of {len(found)} changes noticed")
    lines += [
        f"{one['module']}:{one['line']}: {one['before']}  ->  {one['after']}"
        for one in found
        if one["killer"] == SURVIVED
    ]
    return "\n".join(lines)


def main() -> None:
    """Reads the command line and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=200, help="how many to draw from all that there are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="*", help="modules that fit this pattern, e.g. 'model/*.py'")
    parser.add_argument("--results", type=Path, default=Path("changes.jsonl"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no more changes after this time")
    asked = parser.parse_args()
    stop_s = time.monotonic() + asked.seconds
    pool = [
        (module, change)
        for module in modules()
        if fnmatch.fnmatch(module, asked.only)
        for change in changes((ROOT / module).read_text("utf-8"))
    ]
    chosen = random.Random(asked.seed).sample(pool, min(asked.changes, len(pool)))
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    for name in LIBRARIES.split():
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        run(Copy(Path(folder)), chosen, asked.results, stop_s)
    wanted = {key(described(module, change)) for module, change in chosen}
    found = [one for one in read(asked.results) if key(one) in wanted]
    print(f"{len(found)} of {len(pool)} possible changes tried")
    print(report(found))


if __name__ == "__main__":
    main()
