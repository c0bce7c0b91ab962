"""Runs the project's commands, reports user errors in one line, and sets the exit status."""

import errno
import io
import logging
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NoReturn

import typer
from rich.console import Console, RenderableType
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.exceptions import TyperException

from pipeline.errors import UserError
from pipeline.store.artifact import DISK_FULL

USER_ERROR, INTERRUPTED = 2, 130
VALUES = {"<int>": "N", "<int range>": "N", "<float range>": "X", "<path>": "FILE", "<list[Path]>": "FILE"}
"""What options take, by Typer's words."""
REMEDIES = MappingProxyType(
    {
        **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files: ulimit -n"),
        **dict.fromkeys(DISK_FULL, "free some space and run the same command again"),
    }
)
"""Remedies for errors of the system that may name no file. With a file's name, the system's words suffice."""
logger = logging.getLogger(__name__)

IS_TERMINAL = bool(sys.stdout and sys.stdout.isatty() and os.environ.get("COLUMNS") != "0")
console = Console(width=None if IS_TERMINAL else shutil.get_terminal_size((120, 25)).columns, markup=False, emoji=False)
"""Piped lines have 120 columns unless COLUMNS is set; some programs set it to 0. Markup is off, since folders may be
named `[bold]`."""


class Command(TyperCommand):
    """A command that refuses a second value of an option that takes one, instead of dropping the first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the help of options, with what they take, by `metavar`, VALUES or their name, not its Python type."""
        parameters: list[Any] = self.get_params(ctx)
        for each in parameters:
            named = each.metavar or VALUES.get(each.display_type(ctx), each.name.upper())
            shown = "" if isinstance(each, TyperArgument) else named
            each.display_type_rich = lambda ctx, shown=shown: shown
        super().format_options(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments. Raises UserError for an option given twice."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        for option, count in Counter(given).items():
            if count > 1 and isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                raise UserError(f"{option.opts[0]} is given twice, but takes one value; give it once")
        return super().parse_args(ctx, args)


class App(typer.Typer):
    """A Typer app of such commands, with plain help and errors for `run_app`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        """Registers a command."""
        return super().command(name, cls=Command, **settings)


def help_text(docstring: str | None) -> str:
    """Formats a module's docstring for --help, with `aiayn` in the examples, whose line breaks are kept."""
    named = (docstring or "").replace("python -m workflows.reproduce_", "aiayn ")
    return named.replace("python -m workflows.attention_figures", "aiayn figures").replace("\n\n", "\n\n\b\n")


def run_app(app: typer.Typer, name: str) -> NoReturn:
    """Runs a Typer app; exits with 0, with 2 after a user error (one line on stderr), or with 130 after ctrl-C.

    A user error is one that the user can fix: bad input, an unreadable or unwritable path, a full disk. SIGTERM ends a
    command like ctrl-C.
    """
    open_streams()
    try:
        os.getcwd()
    except FileNotFoundError:
        sys.exit(print_error("the working directory no longer exists; change to another one"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        status = app(prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        status = print_error(str(error))
    except TyperException as error:
        message = error.format_message()
        if "\n" in message:  # the help text, printed if the command is missing
            print(message, file=sys.stderr)
            status = USER_ERROR
        else:
            context = getattr(error, "ctx", None)
            status = print_error(f"{message.removesuffix('.')}; see {context.command_path if context else name} --help")
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe.
        _close_output()
        status = 1
    except OSError as error:
        if not (error.errno in REMEDIES or (error.errno and error.filename)):
            raise
        if error.filename is None and error.errno in DISK_FULL:
            _close_output()  # the full disk may be its own
        logger.debug("traceback of the error below", exc_info=True)
        status = print_error(_described(error))
    if status == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left but the exit
        print("stopped; run the same command again to continue", file=sys.stderr)
    sys.exit(status if isinstance(status, int) else 0)


def open_streams() -> None:
    """Makes the standard streams usable, however this process was started.

    Closed streams are replaced by /dev/null; otherwise the next file opened would get their number and the printed
    text. Characters outside an output's encoding are escaped.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
        elif number and isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def _described(error: OSError) -> str:
    """Returns a file system error's place, problem and, if the system's words do not say it, its remedy."""
    place = os.fsdecode(error.filename) if error.filename else "the output" * (error.errno in DISK_FULL)
    remedy = f"; {text}" if (text := REMEDIES.get(error.errno or 0)) else ""
    return f"{place}{': ' if place else ''}{error.strerror}{remedy}"


def _close_output() -> None:
    """Discards buffered standard output, since flushing at exit would raise again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: RenderableType) -> None:
    """Prints a line as it is, however long."""
    console.print(line, highlight=False, soft_wrap=True)


def print_error(text: str) -> int:
    """Prints an error as one line on stderr; returns the exit status of a user error."""
    print("error:", " ".join(text.split()), file=sys.stderr, flush=True)
    return USER_ERROR
