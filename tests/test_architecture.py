"""The packages' layout, read from their source: allowed imports, and the size of the code behind a table.

Imports inside functions and under `if TYPE_CHECKING` count as those at the top of a module, and so does the module of a
function that is named in a string, as stages do: `Imported("pipeline.training.on_ray:train")`. It is ruff that checks
that imports are absolute and that every package has a docstring.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from workflows.engine.dag import SUFFIXES
from workflows.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "model": (),
    "pipeline": ("model",),
    "workflows": ("model", "pipeline"),
    "benchmarks": ("model", "pipeline", "workflows"),
}
"""Allowed imports by package."""
IN_MODEL = {"torch", *sys.stdlib_module_names}
TRITON = "model.kernels.attention_triton"
RAY_IN_PIPELINE = {"pipeline.training.on_ray", "pipeline.evaluation.decoding", "pipeline.ray_private"}
MOST_LINES = {
    # what is counted: its lines today, which may only fall, and the goal
    "model pipeline": (16_404, 15_600),
    "model/kernels": (338, 600),
    "workflows": (10_335, 8_900),
    "benchmarks": (1_471, 1_450),
    "tests": (20_881, 19_500),
    "a table": (6_422, 5_200),
    "a file": (400, 400),
}
"""Python lines of folders, of what a table imports from workflows/, and of any one file."""


class Module:
    def __init__(self, root: Path, path: Path) -> None:
        parts = path.relative_to(root).with_suffix("").parts
        package = ".".join(parts[:-1])
        self.name = package if parts[-1] == "__init__" else ".".join(parts)
        self.top = parts[0]
        self.node = self.name if package == self.top else package
        """The node of the import graph: the folder, or a module at the top of a package."""
        self.text = path.read_text(encoding="utf-8")
        self._tree = ast.parse(self.text, str(path))

    def imported(self, known: Mapping[str, object]) -> Iterator[str]:
        """Names of imported modules; `from a import b` means `a.b` if that is `known`."""
        for statement in ast.walk(self._tree):
            if isinstance(statement, ast.Import):
                yield from (alias.name for alias in statement.names)
            elif isinstance(statement, ast.ImportFrom) and statement.module:
                for alias in statement.names:
                    name = f"{statement.module}.{alias.name}"
                    yield name if name in known else statement.module
            elif isinstance(statement, ast.Constant) and isinstance(statement.value, str):
                name, _, function = statement.value.partition(":")
                if function.isidentifier() and name in known:
                    yield name


@cache
def read(root: Path) -> Mapping[str, Module]:
    modules = [Module(root, path) for package in MAY_IMPORT for path in sorted((root / package).rglob("*.py"))]
    return {module.name: module for module in modules}


def wrong_imports(modules: Mapping[str, Module]) -> Iterator[str]:
    """Imports that violate `MAY_IMPORT`, imports of tests, and libraries in the wrong place."""
    for module in modules.values():
        for name in dict.fromkeys(module.imported(modules)):
            top = name.partition(".")[0]
            if top == module.top:
                continue
            if (
                top == "tests"
                or (top in MAY_IMPORT and top not in MAY_IMPORT[module.top])
                or (module.top == "model" and top not in IN_MODEL and (top, module.name) != ("triton", TRITON))
                or (module.top == "pipeline" and top == "ray" and module.name not in RAY_IN_PIPELINE)
            ):
                yield f"{module.name} imports {name}"


def circles(modules: Mapping[str, Module]) -> Iterator[str]:
    """One import cycle per package that has any, between its folders and top modules."""
    for package in MAY_IMPORT:
        after: dict[str, set[str]] = {}
        for module in modules.values():
            if module.top == package:
                others = {modules[name].node for name in module.imported(modules) if name in modules}
                inside = {node for node in others if node.partition(".")[0] == package}
                after.setdefault(module.node, set()).update(inside - {module.node})
        try:
            TopologicalSorter({node: sorted(before) for node, before in after.items()}).prepare()
        except CycleError as error:
            yield f"a circle of imports: {' <- '.join(error.args[1])}"


def lines_behind(modules: Mapping[str, Module], start: str) -> int:
    """Lines of the modules of `start`'s package that it imports, directly or indirectly, including itself."""
    reached: set[str] = set()
    to_read = [start]
    while to_read:
        name = to_read.pop()
        if name in reached or name not in modules or modules[name].top != modules[start].top:
            continue
        reached.add(name)
        to_read += [*modules[name].imported(modules), name.rpartition(".")[0]]
    return sum(len(modules[name].text.splitlines()) for name in reached)


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def violations(root: Path) -> list[str]:
    modules = read(root)
    return [*wrong_imports(modules), *circles(modules)]


def test_the_packages_keep_the_rules() -> None:
    assert violations(ROOT) == []
    assert {"model.transformer", "pipeline.corpora.grammar.rules", "workflows.engine.runner"} <= read(ROOT).keys()


def test_the_store_knows_no_stage() -> None:
    modules = read(ROOT)
    stored = [module for name, module in modules.items() if name.startswith("pipeline.store.")]
    imported = {name for module in stored for name in module.imported(modules) if not name.startswith("pipeline.store")}
    assert {name for name in imported if name.startswith("pipeline.")} <= {"pipeline.errors", "pipeline.environment"}


def test_files_beside_the_modules_are_packaged() -> None:
    """Every file that a module reads from its own folder is in an installed package, and part of a table's source."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]
    packaged = {
        path for name, globs in patterns.items() for g in globs for path in ROOT.joinpath(*name.split(".")).glob(g)
    }
    beside = {path for top in ("model", "pipeline", "workflows") for path in (ROOT / top).rglob("*.*")}
    assert {path for path in beside if path.is_file() and path.suffix not in (".py", ".pyc")} == packaged
    assert {path.suffix for path in packaged} | {".py"} == SUFFIXES


@pytest.mark.parametrize("folders", [name for name in MOST_LINES if (ROOT / name.split()[0]).is_dir()])
def test_a_folder_does_not_grow(folders: str) -> None:
    limit, goal = MOST_LINES[folders]
    paths = [path for folder in folders.split() for path in (ROOT / folder).rglob("*.py")]
    n_lines = sum(lines_of(path) for path in paths if "kernels" in folders or "kernels" not in path.parts)
    assert n_lines <= limit, f"{folders}: {n_lines} lines; {goal} are the goal"


def test_no_file_is_long() -> None:
    limit, _ = MOST_LINES["a file"]
    paths = [path for top in (*MAY_IMPORT, "tests", "examples") for path in (ROOT / top).rglob("*.py")]
    assert {path.relative_to(ROOT).as_posix() for path in paths if lines_of(path) > limit} == set()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_stands_on_little(name: str) -> None:
    n_lines = lines_behind(read(ROOT), EXPERIMENTS[name].module)
    limit, goal = MOST_LINES["a table"]
    assert n_lines <= limit, f"{name} imports {n_lines} lines of workflows/; {goal} are the goal"


def test_every_experiment_is_registered() -> None:
    """The registry is complete: `aiayn`'s commands and the tests of all experiments come from it."""
    tables = {path.stem.removeprefix("reproduce_"): path.stem for path in ROOT.glob("workflows/reproduce_*.py")}
    modules = {name: f"workflows.{stem}" for name, stem in {**tables, "figures": "attention_figures"}.items()}
    assert {name: each.module for name, each in EXPERIMENTS.items()} == modules


SOUND = {
    "model/layer.py": "import math\nimport torch.nn",
    "pipeline/errors.py": "import json",
    "pipeline/text/lines.py": "from model import layer\nfrom pipeline.text import words",
    "pipeline/text/words.py": "from pipeline.text.lines import read\nfrom pipeline import errors",
    "pipeline/evaluation/decoding.py": "import ray",
    "workflows/dag.py": "import ray\nfrom pipeline.text import lines",
    "workflows/stages.py": 'RUN = Imported("workflows.dag:run")',
    "workflows/other.py": "pass\n" * 100,
}
"""A tree in which modules of one folder may import each other."""
CIRCLE = "a circle of imports: pipeline.errors <- pipeline.text <- pipeline.errors"
WRONG = {
    'pipeline/errors.py: RUN = Imported("workflows.dag:run")': "pipeline.errors imports workflows.dag",
    "model/layer.py: def f(): import numpy": "model.layer imports numpy",
    "workflows/dag.py: from tests.support import x": "workflows.dag imports tests.support",
    "pipeline/text/words.py: import ray.train": "pipeline.text.words imports ray.train",
    "pipeline/errors.py: def f(): import pipeline.text.words": CIRCLE,
}
"""A file of the sound tree and its replacement, with the one line that is reported."""


def test_each_breach_is_reported(tmp_path: Path) -> None:
    """Nothing for a sound tree, one line per change. The modules behind a table are counted once."""
    trees = {change: tmp_path / str(number) for number, change in enumerate(["", *WRONG])}
    for change, root in trees.items():
        name, _, text = change.partition(": ")
        for path, source in {**SOUND, **({name: text} if name else {})}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(source)
    assert {change: violations(root) for change, root in trees.items()} == {
        "": [],
        **{change: [line] for change, line in WRONG.items()},
    }
    assert lines_behind(read(trees[""]), "workflows.stages") == 1 + 2
