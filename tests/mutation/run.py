"""Mutation testing: changes the code that computes figures in one place at a time, and lists what no test notices.

    python -m tests.mutation.run --mutants 200 --seed 1 --only model/loss.py --results mutants.jsonl

A copy of the project is changed, not the project. Each mutant is tested by the files in TESTS without their tests on
Ray, quickest test first, up to the first failure. That happens in a process forked from one that has collected the
tests, if the mutant is one of functions (`tests.mutation.live`). The others, and those that survive, are tested in a
process forked from one that has imported torch, which imports the project anew.

Results are appended to the file, and mutants that it has already are not tried again, so a long run can be cut into
short ones. Beside it stands how long each test takes.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.live import swaps
from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
COPIED = ("model", "pipeline", "workflows", "tests", "docs", "examples", "pyproject.toml", "README.md", "Makefile")
PAPER = ("tests/workflows/test_paper.py", "tests/workflows/test_paper_experiments.py")
TABLES = (*PAPER, "tests/workflows/tables")
TESTS: Mapping[str, Sequence[str]] = {
    "model/config.py": ("tests/model", "tests/workflows/test_fingerprints.py", *TABLES),
    "model/parameters.py": ("tests/model/test_parameters.py", "tests/workflows/tables"),
    "model/*.py": ("tests/model",),
    "pipeline/attention/*.py": ("tests/pipeline/attention",),
    "model/layer_types/*.py": ("tests/model/layer_types",),
    "pipeline/complexity/*.py": ("tests/pipeline/complexity",),
    "pipeline/evaluation/averaging.py": ("tests/pipeline/evaluation/test_averaging.py",),
    "pipeline/evaluation/costs.py": ("tests/pipeline/evaluation/test_costs.py", *PAPER),
    "pipeline/evaluation/perplexity.py": ("tests/pipeline/evaluation/test_perplexity.py",),
    "pipeline/evaluation/scoring.py": ("tests/pipeline/evaluation/test_scoring.py",),
    "pipeline/text/corpus_statistics.py": ("tests/pipeline/text/test_corpus_statistics.py",),
    "pipeline/hardware.py": ("tests/pipeline/test_hardware.py",),
    "workflows/paper.py": (*TABLES, "tests/workflows/forecast"),
    "workflows/tables/*.py": TABLES,
    "workflows/forecast/*.py": ("tests/workflows/forecast",),
}
"""Modules that compute figures, and the tests that should notice a mutant; the first pattern that fits counts."""
LIBRARIES = (
    "torch torch._dynamo.utils torch.utils.flop_counter numpy scipy.stats pydantic hypothesis rich.table sacrebleu "
    "sacremoses safetensors.torch pyarrow ray ray.tune ray.train.torch matplotlib.pyplot jinja2 typer"
)
"""What is imported once, before the processes fork."""
SURVIVED = ""


def modules() -> dict[str, Sequence[str]]:
    """Returns the modules that are mutated, with their tests."""
    found: dict[str, Sequence[str]] = {}
    for pattern, tests in TESTS.items():
        for path in sorted(ROOT.glob(pattern)):
            if path.name != "__init__.py":
                found.setdefault(str(path.relative_to(ROOT)), tests)
    return found


class Observer:
    """A pytest plugin: leaves out the tests on Ray, sorts the others by time, and keeps the first failure."""

    def __init__(self, known_s: Mapping[str, float]) -> None:
        self.known_s, self.seconds, self.killer = known_s, dict[str, float](), SURVIVED

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sorts the tests; new ones come first."""
        items[:] = [item for item in items if "ray_cluster" not in getattr(item, "fixturenames", ())]
        items.sort(key=lambda item: self.known_s.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up the time of a test and notes its failure."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.killer = self.killer or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes that a file of tests could not be imported."""
        if report.failed:
            self.killer = self.killer or f"{report.nodeid}, when imported"


class Copy:
    """A copy of the project, in which mutants are tested."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seconds = folder, dict[str, float]()
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, folder / name)

    def limit_s(self, tests: Sequence[str]) -> float:
        """Returns the time after which some tests are stopped."""
        return 20 + 3 * sum(seconds for test, seconds in self.seconds.items() if test.startswith(tuple(tests)))

    def kill(self, module: str, mutant: Mutant, tests: Sequence[str]) -> str:
        """Puts a mutant in its module's place; returns the test that failed first, or SURVIVED."""
        (self.folder / module).write_text(mutant.source, encoding="utf-8")
        killer, _ = self.test(tests, self.limit_s(tests), is_mutated=True)
        shutil.copy2(ROOT / module, self.folder / module)
        return killer

    def test(
        self, tests: Sequence[str], limit_s: float, *options: str, is_mutated: bool = False, plugins: Sequence[Any] = ()
    ) -> tuple[str, dict[str, float]]:
        """Runs some tests in a forked process; returns the first failure and the seconds of each test."""
        child = self.fork()
        if not child:
            # Bytecode is found by the second in which its source was written, and in one there may be two mutants.
            sys.dont_write_bytecode = is_mutated
            self._test_here([*options, *tests], plugins)
        return self.result(child, limit_s)

    def fork(self) -> int:
        """Forks; the child has a process group of its own."""
        (self.folder / "result.json").unlink(missing_ok=True)
        child = os.fork()
        if not child:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return child

    def result(self, child: int, limit_s: float) -> tuple[str, dict[str, float]]:
        """Waits for a forked process, and kills it after `limit_s`; returns what `test` does."""
        stop_s, ended = time.monotonic() + limit_s, False
        try:
            while not ended and time.monotonic() < stop_s:
                time.sleep(0.005)
                ended = os.waitpid(child, os.WNOHANG)[0] == child
        finally:
            if not ended:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if not (self.folder / "result.json").exists():
            return "the process died" if ended else f"no end within {limit_s:.0f} s", {}
        killer, seconds = json.loads((self.folder / "result.json").read_text())
        return killer, seconds

    def _test_here(self, arguments: Sequence[str], plugins: Sequence[Any]) -> None:
        with (self.folder / "output.txt").open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.chdir(self.folder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[:] = [str(self.folder), *(place for place in sys.path if place not in ("", str(ROOT)))]
        observer = Observer(self.seconds)
        options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        status = pytest.main([*options, *arguments], plugins=[observer, *plugins])
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            observer.killer = observer.killer or f"pytest, which ended with status {int(status)}"
        (self.folder / "result.json").write_text(json.dumps([observer.killer, observer.seconds]))
        os._exit(0)


class Live:
    """A pytest plugin: runs the tests not once but for each mutant of functions, in forked processes."""

    def __init__(
        self,
        copy: Copy,
        mutants: Sequence[tuple[str, Mutant]],
        record: Callable[[str, Mutant, str], None],
        stop_s: float,
    ) -> None:
        self.copy, self.mutants, self.record, self.stop_s = copy, mutants, record, stop_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Returns None in the forked processes, in which pytest then runs the tests that are left."""
        for module, mutant in self.mutants:
            path, tests = self.copy.folder / module, modules()[module]
            live = swaps(path, path.read_text("utf-8"), mutant.source)
            if not live:
                continue
            if time.monotonic() > self.stop_s:
                break
            child = self.copy.fork()
            if not child:
                for function, code in live:
                    function.__code__ = code
                session.items = [item for item in session.items if item.nodeid.startswith(tuple(tests))]
                return None
            killer, _ = self.copy.result(child, self.copy.limit_s(tests))
            if killer != SURVIVED:
                self.record(module, mutant, killer)
        return True


def run(copy: Copy, chosen: Sequence[tuple[str, Mutant]], results: Path, stop_s: float) -> None:
    """Tests the chosen mutants that have no result yet, and appends theirs; starts none after `stop_s`."""
    tests = modules()
    times = results.with_suffix(".seconds.json")
    every = sorted({test for mapped in tests.values() for test in mapped})
    failure, seconds = copy.test(every, 600, *["--collect-only"] * times.exists())  # which also compiles the copy
    if failure:
        sys.exit(f"{failure} fails without any mutant:\n{(copy.folder / 'output.txt').read_text()}")
    if not times.exists():
        times.write_text(json.dumps(seconds))
    copy.seconds = json.loads(times.read_text())

    def record(module: str, mutant: Mutant, killer: str) -> None:
        with results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(described(module, mutant) | {"killer": killer}, ensure_ascii=False) + "\n")

    def untried() -> list[tuple[str, Mutant]]:
        known = {key(one) for one in read(results)}
        return [(module, mutant) for module, mutant in chosen if key(described(module, mutant)) not in known]

    copy.test(every, float("inf"), plugins=[Live(copy, untried(), record, stop_s)])
    for module, mutant in untried():
        if time.monotonic() > stop_s:
            break
        record(module, mutant, copy.kill(module, mutant, tests[module]))


def described(module: str, mutant: Mutant) -> dict[str, Any]:
    """Returns a mutant as it stands in the results."""
    line, column = mutant.place
    return {"module": module, "line": line, "column": column, "before": mutant.before, "after": mutant.after}


def key(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what tells a mutant from the others."""
    return tuple(one[name] for name in ("module", "line", "column", "before", "after"))


def read(results: Path) -> list[dict[str, Any]]:
    """Reads the results so far."""
    return [json.loads(line) for line in results.read_text("utf-8").splitlines()] if results.exists() else []


def report(found: Sequence[Mapping[str, Any]]) -> str:
    """Writes a line for each module, how many of its mutants were killed, and one for each mutant that survived."""
    lines = []
    for module in [*sorted({one["module"] for one in found}), ""]:
        killers = [one["killer"] for one in found if one["module"].startswith(module)]
        lines.append(f"{module or 'all'}: {sum(killer != SURVIVED for killer in killers)} of {len(killers)} killed")
    lines += [
        f"{one['module']}:{one['line']}: {one['before']}  ->  {one['after']}"
        for one in found
        if one["killer"] == SURVIVED
    ]
    return "\n".join(lines)


def main() -> None:
    """Reads the command line and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=200, help="how many to draw from all that there are")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--only", default="*", help="draw from modules that fit this pattern, e.g. 'model/*.py'")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no more mutants after this time")
    asked = parser.parse_args()
    stop_s = time.monotonic() + asked.seconds
    pool = [
        (module, mutant)
        for module in modules()
        if fnmatch.fnmatch(module, asked.only)
        for mutant in mutants((ROOT / module).read_text("utf-8"))
    ]
    chosen = random.Random(asked.seed).sample(pool, min(asked.mutants, len(pool)))
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    for name in LIBRARIES.split():
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        run(Copy(Path(folder)), chosen, asked.results, stop_s)
    wanted = {key(described(module, mutant)) for module, mutant in chosen}
    print(f"of {len(pool)} possible mutants")
    print(report([one for one in read(asked.results) if key(one) in wanted]))


if __name__ == "__main__":
    main()
