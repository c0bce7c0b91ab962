"""What a user sees of mistakes: one line on standard error, exit status 2."""

import subprocess
import sys

import pytest


def _run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], input=text, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workflows.reproduce_table2", "--profile", "huge"], "no profile 'huge'; choose one of embedded, multi30k"),
        (["workflows.reproduce_table2", "--beam", "4"], "No such option"),
        (["workflows.reproduce_table2", "--pairs", "en-cs"], "--pairs en-cs: the profile has en-de, en-fr"),
        (["workflows.cli", "score", "--hyp", "no.txt", "--ref", "no.txt", "--lang", "de"], "no.txt"),
        (["workflows.cli", "translate", "no-such-model"], "no-such-model"),
        (["workflows.cli", "train", ".", "--out", "x"], "holds no dataset.json; name a EncodedDataset"),
        (["workflows.cli", "average", "nowhere", "--out", "x"], "nowhere is not a folder"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    """No traceback, nothing on standard output."""
    done = _run(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr
    assert done.stdout == ""


def test_every_command_has_a_help_text_with_defaults() -> None:
    """--help works without starting anything and tells the paper's values."""
    assert "prepare" in _run("workflows.cli", "--help").stdout
    assert "default: 4" in _run("workflows.cli", "translate", "--help").stdout
    assert "--plan" in _run("workflows.reproduce_table2", "--help").stdout
