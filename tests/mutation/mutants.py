"""Mutants of a module: its source with one small change, of a kind that some test should notice.

    for mutant in mutants(source):
        mutant.source        # the whole module, changed in one place

What shows only to a reader is left alone: docstrings, annotations, decorators, texts of errors and of the log, and how
a terminal lays out a table. So is what a CPU cannot show, such as the device of a tensor.
"""

import ast
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_PAIRS = "min max, any all, amin amax, ceil floor, sin cos, stdev pstdev, fmean median, clamp_min clamp_max"
OPPOSITES = {one: other for pair in _PAIRS.split(", ") for one, other in (pair.split(), pair.split()[::-1])}
"""Names of functions that are easily taken for each other."""
LAYOUT = "style header_style border_style justify overflow no_wrap title_justify box padding pad_edge show_edge"
LEFT_ALONE = {"device", "strict", *LAYOUT.split()}
"""Keyword arguments that show on a GPU alone, only assert, or lay out a table."""
LOGS = {"log", "logger"}


Place = ast.expr | ast.stmt | ast.comprehension


@dataclass(frozen=True)
class Mutant:
    """A module and what may stand in one of its places."""

    module: ast.Module
    holder: ast.AST
    """The node that holds the place, in `field` and, where that is a list, at `index`."""
    field: str
    index: int | None
    node: Place
    """What stands there."""
    other: ast.AST

    @property
    def place(self) -> tuple[int, int]:
        """Returns line and column."""
        at = self.node.target if isinstance(self.node, ast.comprehension) else self.node
        return at.lineno, at.col_offset

    @property
    def before(self) -> str:
        """Returns the changed expression, or the first line of the changed statement, as it was."""
        return ast.unparse(self.node).strip().split("\n")[0]

    @property
    def after(self) -> str:
        """Returns what stands in its place."""
        return ast.unparse(self.other).strip().split("\n")[0]

    @property
    def source(self) -> str:
        """Returns the source of the whole module, changed in this one place."""
        _put(self.holder, self.field, self.index, self.other)
        changed = ast.unparse(self.module)
        _put(self.holder, self.field, self.index, self.node)
        return changed


def mutants(source: str) -> Iterator[Mutant]:
    """Lists all mutants of a module that there are, in the order of the source."""
    module = ast.parse(source)
    for holder, field, index, node in _places(module):
        for other in _others(node):
            yield Mutant(module, holder, field, index, node, other)


def _put(holder: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(holder, field, node)
    else:
        getattr(holder, field)[index] = node


def _places(holder: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, Place]]:
    """Walks what may be changed, each with the field of the node that holds it."""
    for field, value in ast.iter_fields(holder):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or _is_for_readers(node):
                continue
            if isinstance(node, Place):
                yield holder, field, index, node
            yield from _places(node)


def _is_for_readers(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGS
        case ast.keyword(arg=name):
            return name in LEFT_ALONE
        case ast.Call(func=ast.Name(id="isinstance" | "cast")):
            return True
    return False


def _with(node: ast.AST, **fields: Any) -> Any:
    """Copies a node with other fields."""
    other = copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _others(node: Place) -> Iterator[Any]:
    """Makes what may stand in a node's place."""
    match node:
        case ast.Constant():
            yield from (ast.Constant(value) for value in _other_values(node.value))
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield _with(node, op=ARITHMETIC[type(node.op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in COMPARISONS[type(op)]:
                    yield _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
        case ast.Name() if node.id in OPPOSITES:
            yield _with(node, id=OPPOSITES[node.id])
        case ast.Attribute() if node.attr in OPPOSITES:
            yield _with(node, attr=OPPOSITES[node.attr])
        case ast.Slice(step=None):
            # Ends that are numbers are changed as numbers.
            if not isinstance(node.lower, ast.Constant):
                yield _with(node, lower=_one_more(node.lower))
            if node.upper and not isinstance(node.upper, ast.Constant):
                yield _with(node, upper=_one_more(node.upper))
        case ast.If() | ast.IfExp() | ast.While() if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension(ifs=[test, *others]) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield _with(node, ifs=[ast.UnaryOp(ast.Not(), test), *others])
        case ast.Return() if node.value and ast.unparse(node.value) != "None":
            yield _with(node, value=ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Call():
            for i, keyword in enumerate(node.keywords):
                if keyword.arg and keyword.arg not in LEFT_ALONE:
                    yield _with(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])


def _one_more(end: ast.expr | None) -> ast.expr:
    return ast.Constant(1) if end is None else ast.BinOp(end, ast.Add(), ast.Constant(1))


def _other_values(value: object) -> Iterator[object]:
    match value:
        case bool():
            yield not value
        case int():
            yield from (value + 1, value - 1)
        case float():
            yield value * 1.1 if value else 0.1
        case str() if re.fullmatch(r"\d+(\.\d+)?", value):
            # A printed figure: another last digit.
            yield value[:-1] + str((int(value[-1]) + 1) % 10)
