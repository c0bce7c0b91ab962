"""What a user sees of mistakes: one line on standard error, exit status 2."""

import re
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, Done


def _assert_one_line(done: Done, message: str) -> None:
    """No traceback, nothing but whose settings are in force and the plan's first line on standard output."""
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr
    assert re.fullmatch(r"(settings of profile .*\n)?(\d+ stages to run\n)?", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workflows.reproduce_table2", "--address", "127.0.0.1:9", "--store", "STORE"], "no Ray cluster answers"),
        (["workflows.cli", "average", "nowhere", "--out", "x"], "nowhere is not a folder"),
    ],
)
def test_a_process_ends_with_one_line_and_status_2(
    arguments: list[str], message: str, tmp_path: Path, command_line: CommandLine
) -> None:
    """None of the libraries that are imported adds to it."""
    arguments = [str(tmp_path) if argument == "STORE" else argument for argument in arguments]
    _assert_one_line(command_line.in_process(*arguments), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workflows.reproduce_table2", "--profile", "huge"], "no profile 'huge'; choose one of embedded, multi30k"),
        (["workflows.reproduce_table2", "--beam", "4"], "No such option"),
        (["workflows.reproduce_table2", "--pairs", "en-cs"], "--pairs en-cs: the profile has en-de, en-fr"),
        (["workflows.cli", "score", "--hyp", "no.txt", "--ref", "no.txt", "--lang", "de"], "no.txt"),
        (["workflows.cli", "translate", "no-such-model"], "no-such-model"),
        (
            ["workflows.cli", "train", ".", "--out", "x"],
            "holds no dataset.json; name a folder that `aiayn prepare` made",
        ),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], message: str, command_line: CommandLine) -> None:
    """What is wrong and where."""
    _assert_one_line(command_line.here(*arguments), message)


def test_every_command_has_a_help_text_with_defaults(command_line: CommandLine) -> None:
    """--help works without starting anything and tells the paper's values."""
    assert "prepare" in command_line.in_process("workflows.cli", "--help").stdout
    assert "default: 4" in command_line.here("workflows.cli", "translate", "--help").stdout
    assert "--plan" in command_line.here("workflows.reproduce_table2", "--help").stdout
