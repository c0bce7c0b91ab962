"""Runs the project's commands: a mistake of the user's is reported in one line, and the exit status is set."""

import logging
import os
import sys
from typing import NoReturn

import typer
from rich.console import Console
from typer.exceptions import TyperException

from pipeline.errors import UserError

USER_ERROR, INTERRUPTED = 2, 130

console = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 120)
"""On a pipe lines have 120 columns, unless COLUMNS says otherwise."""


def help_text(docstring: str | None) -> str:
    """Formats a module's docstring for --help, keeping the line breaks of the examples after its first paragraph."""
    return (docstring or "").replace("\n\n", "\n\n\b\n")


def run_app(app: typer.Typer, name: str) -> NoReturn:
    """Runs a typer application and exits with 0, with 2 after bad input (one line on stderr), or 130 after ctrl-C."""
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
        # The reader of our output has closed the pipe; flushing at exit would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    if status == INTERRUPTED:
        print("stopped; run the same command again to continue", file=sys.stderr)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(text: str) -> int:
    print("error:", " ".join(text.split()), file=sys.stderr, flush=True)
    return USER_ERROR
