"""Mutants differ from their module as a reader would expect, and nothing that only a reader would see is changed."""

import ast
from textwrap import dedent

import pytest

from tests.mutation.mutants import mutants
from tests.mutation.run import ROOT, TESTS, modules


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("RATE = 3", {"RATE = 4", "RATE = 2"}),
        ("RATE = 0.5", {"RATE = 0.55"}),
        ("FAST = True", {"FAST = False"}),
        ("row = Row('E', '25.5')", {"row = Row('E', '25.6')"}),
        ("a + b", {"a - b"}),
        ("n /= k", {"n *= k"}),
        ("a < b", {"a <= b", "a >= b"}),
        ("a is None", {"a is not None"}),
        ("a and b", {"a or b"}),
        ("not a", {"a"}),
        ("a if b else c", {"a if not b else c"}),
        ("[a for a in b if c]", {"[a for a in b if not c]"}),
        ("n = min(a)", {"n = max(a)"}),
        ("a[:n]", {"a[1:n]", "a[:n + 1]"}),
        ("normal_(a, std=b)", {"normal_(a)", "pass"}),
        ("a = normal(b, std=c)", {"a = normal(b)"}),
        ("def f(n=c):\n    return n", {"def f(n=c):\n    return None"}),
    ],
)
def test_each_kind_of_mutant(source: str, wanted: set[str]) -> None:
    """One place is changed at a time, in each way that there is for it."""
    assert {mutant.source for mutant in mutants(source)} == wanted


def test_what_is_for_readers_stays() -> None:
    """Docstrings, annotations, decorators, errors, logs and the layout of a table are left alone."""
    source = '''
        """Says 3."""
        from a import b
        @dataclass(frozen=True)
        class C:
            n: Literal[3]
            """At most 3."""
            def f(self, n: Annotated[int, 3]) -> Literal[3]:
                log.info("%s of %s", n, 3)
                table.column(style="3", justify="right")
                raise ValueError(f"{n + 1} is not 3")
        '''
    assert [mutant.after for mutant in mutants(dedent(source))] == [
        "pass"
    ]  # of all this only the new column can be left out


def test_mutants_are_other_programs() -> None:
    """Each mutant differs from the module and from the module's other mutants, and making one leaves no trace."""
    source = (ROOT / "model/optimizer.py").read_text("utf-8")
    listed = list(mutants(source))
    programs = [ast.dump(ast.parse(mutant.source)) for mutant in [*listed, *listed]]
    assert len({*programs, ast.dump(ast.parse(source))}) == len(listed) + 1 > 10


def test_every_module_that_is_mutated_has_tests() -> None:
    """The patterns fit modules that exist, and so do the names of their tests."""
    assert {"model/loss.py", "pipeline/evaluation/costs.py", "workflows/paper.py"} <= modules().keys()
    assert all((ROOT / test).exists() for tests in TESTS.values() for test in tests)
    assert all(list(ROOT.glob(pattern)) for pattern in TESTS)
