"""Puts the functions of a mutant in the place of those that are already imported.

    for function, code in swaps(path, source, mutant.source):
        function.__code__ = code

A mutant of a function then needs neither imports nor pytest's collection again. What runs at import, such as constants,
default arguments and the bodies of classes, cannot be changed this way.
"""

import gc
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType

Swap = tuple[FunctionType, CodeType]


def swaps(path: Path, source: str, mutated: str) -> list[Swap]:
    """Lists the live functions that differ, each with its mutated code; empty where more than functions differ."""
    codes = list(_differing(*(compile(text, str(path), "exec") for text in (source, mutated))))
    if not all(_is_function(before) and before.co_freevars == after.co_freevars for before, after in codes):
        return []
    live = [one for one in gc.get_objects() if type(one) is FunctionType and one.__code__.co_filename == str(path)]
    return [(one, after) for one in live for before, after in codes if one.__code__ == before]


def _differing(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Walks the functions that differ or have one that does inside, and other code that differs itself."""
    inside = [pair for both in zip(_nested(before), _nested(after), strict=False) for pair in _differing(*both)]
    yield from inside
    if _own(before) != _own(after) or (inside and _is_function(before)):
        yield before, after


def _nested(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    """Returns what a piece of code does, without what is nested in it and without its line numbers."""
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, len(_nested(code))


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & CO_OPTIMIZED)
