"""How every command of the project ends: one line for what the user can mend, and the exit status."""

import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from typer.exceptions import TyperException

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact

USER_ERROR, INTERRUPTED = 2, 130

console = Console(width=None if sys.stdout.isatty() else 120)


def help_text(docstring: str | None) -> str:
    """A module's docstring for --help, the lines of the examples behind its first paragraph kept as they are."""
    return (docstring or "").replace("\n\n", "\n\n\b\n")


def run_app(app: typer.Typer, name: str) -> NoReturn:
    """Runs a typer application and exits: 0, or 2 after bad input (one line on standard error), or 130 after ctrl-C."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        status = app(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        status = _fail(str(error))
    except TyperException as error:
        status = _fail(f"{error.format_message()} See {name} --help.")
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; flushing at exit would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    if status == INTERRUPTED:
        print("stopped; the same command goes on from here", file=sys.stderr)
    sys.exit(status if isinstance(status, int) else 0)


def require_output_of(maker: str, path: Path, sign: str) -> Path:
    """`path`, made sure to be what the command `maker` makes by the file that only such a folder has, and undamaged.

    Raises UserError where it is not.
    """
    if not (path / sign).is_file():
        reason = f"holds no {sign}" if path.is_dir() else "is not a folder"
        raise UserError(f"{path} {reason}; name a folder that `aiayn {maker}` made")
    Artifact(path).check()
    return path.absolute()


def _fail(text: str) -> int:
    print("error:", " ".join(text.split()), file=sys.stderr, flush=True)
    return USER_ERROR
