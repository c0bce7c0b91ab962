"""What a user sees of mistakes: one line on standard error, exit status 2."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


def _run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], input=text, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workflows.reproduce_table2", "--profile", "huge"], "no profile 'huge'; choose one of embedded, multi30k"),
        (["workflows.reproduce_table2", "--beam", "4"], "No such option"),
        (["workflows.reproduce_table2", "--pairs", "en-cs"], "--pairs en-cs: the profile has en-de, en-fr"),
        (["workflows.reproduce_table2", "--address", "127.0.0.1:9", "--store", "STORE"], "no Ray cluster answers"),
        (["workflows.cli", "score", "--hyp", "no.txt", "--ref", "no.txt", "--lang", "de"], "no.txt"),
        (["workflows.cli", "translate", "no-such-model"], "no-such-model"),
        (
            ["workflows.cli", "train", ".", "--out", "x"],
            "holds no dataset.json; name a folder that `aiayn prepare` made",
        ),
        (["workflows.cli", "average", "nowhere", "--out", "x"], "nowhere is not a folder"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    """No traceback, nothing but the plan's first line on standard output."""
    done = _run(*(str(tmp_path) if argument == "STORE" else argument for argument in arguments))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr
    assert re.fullmatch(r"(\d+ stages to run\n)?", done.stdout)


def test_every_command_has_a_help_text_with_defaults() -> None:
    """--help works without starting anything and tells the paper's values."""
    assert "prepare" in _run("workflows.cli", "--help").stdout
    assert "default: 4" in _run("workflows.cli", "translate", "--help").stdout
    assert "--plan" in _run("workflows.reproduce_table2", "--help").stdout
