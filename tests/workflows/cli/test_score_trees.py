"""`aiayn score-trees`: EVALB's scores, messages on the error stream, and errors in one line."""

import gzip
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, Done

GOLD = "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NP (DT a) (NN bone))) (. .))"
TEST = "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (PP (DT a)) (NP (NN bone))) (. .))"
LONG = "(NP {})".format(" ".join(["(NN a)"] * 41))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sentences, one of 41 words; the first has 3 of 4 gold brackets among its 5."""
    (tmp_path / "gold").write_bytes(gzip.compress(f"{GOLD}\n{LONG}\n".encode()))
    (tmp_path / "test").write_text(f"{TEST}\n{LONG}\n")
    return tmp_path


def run(command_line: CommandLine, folder: Path, *options: str) -> Done:
    """Runs the command on a folder's files."""
    files = ("--gold", str(folder / "gold"), "--test", str(folder / "test"))
    return command_line.here("workflows.cli", "score-trees", *files, *options)


def test_the_summary(folder: Path, command_line: CommandLine) -> None:
    """Only EVALB's summary: 4 of 5 gold brackets and of 6."""
    done = run(command_line, folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.split("\n")
    assert lines[0] == "=== Summary ==="
    assert lines[7:10] == [
        "Bracketing Recall         =  80.00",
        "Bracketing Precision      =  66.67",
        "Bracketing FMeasure       =  72.73",
    ]


def test_errors(folder: Path, command_line: CommandLine) -> None:
    """Messages go to the error stream, one per line; too many end in a single line."""
    (folder / "test").write_text(f"{TEST.replace('dog', 'cat')}\n")
    done = run(command_line, folder)
    assert done.returncode == 0
    assert done.stderr == ("1 : Words unmatch (dog|cat)\n2 : Number of lines unmatch (too many lines in gold file)\n")
    (folder / "test").write_text(f"{TEST.replace('dog', 'cat')}\n" * 12)
    (folder / "gold").write_text(f"{GOLD}\n" * 12)
    done = run(command_line, folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "12 errors, more than MAX_ERROR 10 tolerates, the last in line 12: Words unmatch" in done.stderr
