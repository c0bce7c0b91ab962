"""Errors that the user can fix."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pydantic import ValidationError


class UserError(Exception):
    """Bad input, in one line: what is wrong, in which file and line or option, and what to do about it.

    The command line prints it without a traceback and exits with status 2.
    """


class BucketError(UserError, OSError):
    """A service that does not answer or denies access; an OSError, for callers that can continue without it."""


class LostProcessError(UserError):
    """A process or a node was lost for good. The step is not at fault: a retry helps."""


class LockLostError(UserError):
    """Another process has taken over the artifact because this one went silent."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Returns the error for a process that was building `folder`."""
        return cls(
            f"another command has taken over {folder} because this one went silent; let that one finish, "
            "or stop it and run the same command again"
        )


def mistakes(error: "ValidationError", within: str = "") -> str:
    """Returns the first three mistakes in one line, each after the name of its field, which begins with `within`."""
    found = []
    for each in error.errors():
        field = within + ".".join(str(part) for part in each["loc"] if part != "[key]")
        found.append(f"{field}: {each['msg']}".removeprefix(": ").replace("Value error, ", "", 1))
    return "; ".join(found[:3] + [f"and {len(found) - 3} more"] * (len(found) > 3))
