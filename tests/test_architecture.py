"""The packages' layout, read from their source: which may import which, and how much a table may stand on.

Imports inside functions and under `if TYPE_CHECKING` count as those at the top of a module, and so does the module of a
function that is named in a string, as stages do: `Imported("pipeline.training.on_ray:train")`.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "model": (),
    "pipeline": ("model",),
    "workflows": ("model", "pipeline"),
    "benchmarks": ("model", "pipeline", "workflows"),
}
"""Packages, and the others that each may import."""
IN_MODEL = {"torch", *sys.stdlib_module_names}
RAY_IN_PIPELINE = {"pipeline.training.on_ray", "pipeline.evaluation.decoding", "pipeline.ray_private"}
TABLES = ("reproduce_table1", "reproduce_table2", "reproduce_table3", "reproduce_table4")
MAX_LINES, GOAL_LINES = 7_060, 4_500
"""Of workflows/, read by whoever follows one table to its end: what no table may exceed today, and what is aimed at."""


class Module:
    """A source file of one of the packages."""

    def __init__(self, root: Path, path: Path) -> None:
        parts = path.relative_to(root).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.package = ".".join(parts[:-1])
        """The package that relative imports start from."""
        self.name = self.package if self.is_package else ".".join(parts)
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text, str(path))

    @property
    def top(self) -> str:
        """The package at the root."""
        return self.name.partition(".")[0]

    @property
    def node(self) -> str:
        """What circles are looked for between: the folder, or a module at the top of a package by itself."""
        return self.name if self.package == self.top else self.package

    def imported(self, known: Mapping[str, object]) -> Iterator[str]:
        """Absolute names of the modules imported; `from a import b` is of `a.b` where that is one of the `known`."""
        for statement in ast.walk(self.tree):
            if isinstance(statement, ast.Import):
                yield from (alias.name for alias in statement.names)
            elif isinstance(statement, ast.ImportFrom):
                above = self.package.split(".")[: 1 - statement.level or None] if statement.level else []
                source = ".".join([*above, *filter(None, [statement.module])])
                for alias in statement.names:
                    name = f"{source}.{alias.name}"
                    yield name if name in known else source
            elif isinstance(statement, ast.Constant) and isinstance(statement.value, str):
                name, _, function = statement.value.partition(":")
                if function.isidentifier() and name in known:
                    yield name


@cache
def read(root: Path) -> Mapping[str, Module]:
    """The modules of all packages under `root`, by name."""
    found = [Module(root, path) for package in MAY_IMPORT for path in sorted((root / package).rglob("*.py"))]
    return {module.name: module for module in found}


def wrong_imports(modules: Mapping[str, Module]) -> Iterator[str]:
    """Imports against the arrows of `MAY_IMPORT`, of the tests, and of libraries out of their place."""
    for module in modules.values():
        for name in dict.fromkeys(module.imported(modules)):
            top = name.partition(".")[0]
            if top == module.top:
                continue
            if (
                top == "tests"
                or (top in MAY_IMPORT and top not in MAY_IMPORT[module.top])
                or (module.top == "model" and top not in IN_MODEL)
                or (module.top == "pipeline" and top == "ray" and module.name not in RAY_IN_PIPELINE)
            ):
                yield f"{module.name} imports {name}"


def circles(modules: Mapping[str, Module]) -> Iterator[str]:
    """One circle of imports for each package that has any, between its folders and the modules at its top."""
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
    """Lines of the modules of `start`'s package that it imports, directly or through others, its own included."""
    reached: set[str] = set()
    to_read = [start]
    while to_read:
        name = to_read.pop()
        if name in reached or name not in modules or modules[name].top != modules[start].top:
            continue
        reached.add(name)
        to_read += [*modules[name].imported(modules), name.rpartition(".")[0]]
    return sum(len(modules[name].text.splitlines()) for name in reached)


def undescribed(modules: Mapping[str, Module]) -> Iterator[str]:
    """Folders on the way to a module that have no __init__.py, or one without a docstring."""
    folders = set()
    for module in modules.values():
        parts = module.package.split(".")
        folders |= {".".join(parts[: i + 1]) for i in range(len(parts))}
    for name in sorted(folders):
        package = modules.get(name)
        if package is None:
            yield f"{name} has no __init__.py"
        elif not ast.get_docstring(package.tree):
            yield f"{name}/__init__.py has no docstring"


def violations(root: Path) -> list[str]:
    """All that is against the rules, a line each."""
    modules = read(root)
    rules = (wrong_imports, circles, undescribed)
    return [line for rule in rules for line in rule(modules)]


def test_the_packages_keep_the_rules() -> None:
    """No import against the arrows, no circle, every folder described."""
    assert violations(ROOT) == []


@pytest.mark.parametrize("table", TABLES)
def test_a_table_stands_on_little(table: str) -> None:
    """Whoever follows a table through workflows/ to its end reads no more lines than `MAX_LINES`, which only falls."""
    n_lines = lines_behind(read(ROOT), f"workflows.{table}")
    assert n_lines <= MAX_LINES, f"{table} imports {n_lines} lines of workflows/; {GOAL_LINES} are the goal"


def test_all_packages_are_read() -> None:
    """The empty list above is not for want of modules or imports."""
    modules = read(ROOT)
    between = {(m.top, name.partition(".")[0]) for m in modules.values() for name in m.imported(modules)}
    assert {("pipeline", "model"), ("workflows", "pipeline"), ("model", "torch"), ("pipeline", "ray")} <= between
    assert {"model.transformer", "pipeline.corpora.grammar.rules", "workflows.engine.runner"} <= modules.keys()


SOUND = {
    "model/__init__.py": '"""Tensors."""',
    "model/layer.py": "import math\nimport torch.nn\nfrom torch import Tensor",
    "pipeline/__init__.py": '"""Stages."""',
    "pipeline/errors.py": "import json",
    "pipeline/text/__init__.py": '"""Text."""',
    "pipeline/text/lines.py": "import numpy\nfrom model import layer\nfrom . import words\nfrom ..errors import Error",
    "pipeline/text/words.py": "from pipeline.text.lines import read\nfrom pipeline import errors",
    "pipeline/evaluation/__init__.py": '"""Scores."""',
    "pipeline/evaluation/decoding.py": "import ray",
    "workflows/__init__.py": '"""Commands."""',
    "workflows/main.py": "import model.layer\nimport ray\nfrom pipeline.text import lines",
}
"""A tree in which modules of one folder may import each other."""
CIRCLE = "a circle of imports: pipeline.errors <- pipeline.text <- pipeline.errors"
DEEP = {"pipeline/text/deep/__init__.py": '"""Deep."""', "pipeline/text/deep/inside.py": "from .. import lines"}
WRONG = {
    "model imports pipeline": (
        {"model/layer.py": "from pipeline import errors"},
        "model.layer imports pipeline.errors",
    ),
    "pipeline imports workflows": ({"pipeline/errors.py": "import workflows"}, "pipeline.errors imports workflows"),
    "workflows import benchmarks": ({"workflows/main.py": "import benchmarks"}, "workflows.main imports benchmarks"),
    "model imports a library": ({"model/layer.py": "from numpy import array"}, "model.layer imports numpy"),
    "inside a function": ({"model/layer.py": "def f():\n    import numpy"}, "model.layer imports numpy"),
    "named by a stage": (
        {"pipeline/errors.py": 'RUN = Imported("workflows.main:run")'},
        "pipeline.errors imports workflows.main",
    ),
    "circle by a stage": ({"pipeline/errors.py": 'WRITE = Imported("pipeline.text.words:write")'}, CIRCLE),
    "a test": ({"workflows/main.py": "from tests.support import x"}, "workflows.main imports tests.support"),
    "ray out of its place": ({"pipeline/text/words.py": "import ray.train"}, "pipeline.text.words imports ray.train"),
    "circle": ({"pipeline/errors.py": "from pipeline.text import words"}, CIRCLE),
    "circle of relative imports": ({"pipeline/errors.py": "from .text.words import x"}, CIRCLE),
    "circle inside a function": ({"pipeline/errors.py": "def f():\n    import pipeline.text.words"}, CIRCLE),
    "circle with a folder inside": (
        {**DEEP, "pipeline/text/words.py": "from pipeline.text.deep.inside import x"},
        "a circle of imports: pipeline.text <- pipeline.text.deep <- pipeline.text",
    ),
    "circle of top modules": (
        {"model/layer.py": "from model import loss", "model/loss.py": "from model.layer import x"},
        "a circle of imports: model.layer <- model.loss <- model.layer",
    ),
    "no docstring": ({"pipeline/text/__init__.py": "import json"}, "pipeline.text/__init__.py has no docstring"),
    "no __init__.py": ({"workflows/cli/main.py": ""}, "workflows.cli has no __init__.py"),
    "no __init__.py on the way": (
        {"workflows/cli/deep/__init__.py": '"""Deep."""', "workflows/cli/deep/main.py": ""},
        "workflows.cli has no __init__.py",
    ),
}
"""What is written over the sound tree, and the one line that is reported."""


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Writes source files under `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_sound_tree_passes(tmp_path: Path) -> None:
    """Nothing that is allowed is refused."""
    assert violations(write(tmp_path, SOUND)) == []


BEHIND = {
    "at the top": ("from workflows.engine import dag", 5),
    "inside a function": ("def f():\n    from workflows.engine.dag import x", 6),
    "named by a stage": ('RUN = Imported("workflows.engine.dag:run")', 5),
    "named elsewhere": ('RUN = {"run": "workflows.engine.dag:run"}', 5),
    "through another": ("from workflows import stages", 6),
    "twice": ("from workflows import stages\nfrom workflows.engine import dag", 7),
    "nothing": ("import json", 2),
}
"""What a table's module says, and how many lines of workflows/ that comes to."""


@pytest.mark.parametrize("name", BEHIND)
def test_lines_behind_a_table_are_counted(name: str, tmp_path: Path) -> None:
    """All ways of importing count, each module and package once; other top packages and what is not imported do not."""
    text, n_lines = BEHIND[name]
    files = {
        "workflows/engine/__init__.py": '"""The DAG."""',
        "workflows/engine/dag.py": "import model.layer\nx = 1",
        "workflows/engine/other.py": "pass\n" * 100,
        "workflows/stages.py": 'RUN = Imported("workflows.engine.dag:run")',
        "workflows/table.py": text,
    }
    assert lines_behind(read(write(tmp_path, {**SOUND, **files})), "workflows.table") == n_lines


@pytest.mark.parametrize("name", WRONG)
def test_each_breach_is_reported(name: str, tmp_path: Path) -> None:
    """One change to a sound tree, one line."""
    files, line = WRONG[name]
    assert violations(write(tmp_path, {**SOUND, **files})) == [line]
