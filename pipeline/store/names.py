"""Names from files, archives and servers that become paths."""

import re
from typing import Annotated

from pydantic import AfterValidator

_PART = r"[^./\0-\x1f\x7f][^/\0-\x1f\x7f]*"


def inside(name: str) -> str:
    """Returns a name that stays below the folder it is joined to.

    Raises ValueError if it is absolute, or has an empty part, a hidden one or `..`.
    """
    if not re.fullmatch(f"{_PART}(/{_PART})*", name):
        raise ValueError(f"{name!r} names no file below a folder (absolute, hidden, or with an empty part or ..)")
    return name


Inside = Annotated[str, AfterValidator(inside)]
