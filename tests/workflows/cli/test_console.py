"""What a user sees of mistakes: one line on standard error, exit status 2."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.support.command_line import CommandLine, Done
from workflows.cli.console import run_app
from workflows.command_line import CommandLine as TypedCommand
from workflows.command_line import command_line


def _assert_one_line(done: Done, message: str) -> None:
    """No traceback, nothing but whose settings are in force and the plan's first line on standard output."""
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr
    assert re.fullmatch(r"(settings of profile .*\n)?(to watch: .*\n)?(\d+ stages to run\n)?", done.stdout)


def test_a_process_ends_with_one_line_and_status_2(tmp_path: Path, command_line: CommandLine) -> None:
    """None of the libraries that are imported adds to it. No run is begun."""
    arguments = ["workflows.reproduce_table2", "--address", "127.0.0.1:9", "--store", str(tmp_path)]
    _assert_one_line(command_line.in_process(*arguments), "no Ray cluster answers")
    assert not (tmp_path / "table2").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workflows.reproduce_table1", "--set", "layers.kernel=4"], "kernel is 4; it must be odd"),
        (["workflows.reproduce_table1", "--set", "timing.rounds"], "write it as key=value"),
        (["workflows.reproduce_table4", "--silver", "x.trees"], "name its folder with --treebank"),
        (["workflows.reproduce_table4", "--treebank", "none"], "is no treebank"),
        (["workflows.reproduce_table2", "--profile", "huge"], "no profile 'huge'; choose one of embedded, multi30k"),
        (["workflows.reproduce_table2", "--beam", "4"], "No such option"),
        (["workflows.reproduce_table2", "--pairs", "en-cs"], "--pairs en-cs: the profile has en-de, en-fr"),
        (["workflows.reproduce_table2", "--pairs", ""], "--pairs '': the profile has en-de, en-fr"),
        (["workflows.reproduce_table2", "--models", "base,"], "--models '': the profile has base, big"),
        (["workflows.reproduce_table2", "--gpus", "8"], "--gpus and --gpu name the hardware that --plan forecasts for"),
        (["workflows.reproduce_table2", "--plan", "--gpu", "k80"], "--gpu k80: choose one of p100, v100, t4, a10"),
        (["workflows.reproduce_table3", "--plan", "--rows", "F"], "--rows F: there is no such row in Table 3"),
        (["workflows.cli", "score", "--hyp", "no.txt", "--ref", "no.txt", "--lang", "de"], "no.txt"),
        (["workflows.cli", "translate", "no-such-model"], "no-such-model"),
        (["workflows.cli", "translate", ".", "--beam-size", "1000000"], "beam_size"),
        (["workflows.cli", "clean", "--store", "no-such-store"], "there is no store here"),
        (
            ["workflows.cli", "train", ".", "--out", "x"],
            "holds no dataset.json; name a folder that `aiayn prepare` made",
        ),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], message: str, command_line: CommandLine) -> None:
    """What is wrong and where."""
    _assert_one_line(command_line.here(*arguments), message)


TEXT = ["workflows.cli", "score", "--lang", "de", "--ref", "FILE", "--hyp"]
AVERAGE = ["workflows.cli", "average", "RUN", "--last", "1", "--out"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workflows.reproduce_table1", "--profile", "cpu", "--store", "/proc/nope"], "/proc/nope: No such file"),
        (["workflows.reproduce_table2", "--store", "FILE"], "file is a file; name a folder"),
        (["workflows.reproduce_table2", "--store", "FILE/x"], "Not a directory; a file stands where a folder should"),
        (["workflows.reproduce_table2", "--plan", "--config", "FOLDER"], "Is a directory; name a file"),
        (["workflows.cli", "clean", "--store", "FILE"], "file is a file; name a folder"),
        ([*AVERAGE, "/proc/nope"], "/proc/.locks: No such file or directory; check the path"),
        ([*AVERAGE, "FOLDER/" + "x" * 300], "File name too long; choose a shorter path"),
        ([*TEXT, "FOLDER"], "Is a directory"),
        (["workflows.cli", "score-trees", "--gold", "FOLDER", "--test", "FILE"], "Is a directory"),
    ],
)
def test_a_place_that_cannot_be_used_is_one_line_and_status_2(
    arguments: list[str], message: str, tmp_path: Path, command_line: CommandLine
) -> None:
    """Where no folder can be made, a file stands where a folder should be, or a folder where a file should."""
    (tmp_path / "file").write_text("ein Hund .\n")
    places = {"FILE": str(tmp_path / "file"), "FOLDER": str(tmp_path), "RUN": str(_run(tmp_path / "run"))}
    for word, place in places.items():
        arguments = [argument.replace(word, place) for argument in arguments]
    _assert_one_line(command_line.here(*arguments), message)


def test_an_output_that_takes_nothing_is_one_line_and_status_2(tmp_path: Path) -> None:
    """Nothing is raised again when the process ends and standard output is flushed."""
    (tmp_path / "text").write_text("ein Hund .\n")
    options = ["--hyp", "text", "--ref", "text", "--lang", "de"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "workflows.cli", "score", *options],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    wanted = "error: the output: No space left on device; free some space and run the same command again\n"
    assert (done.returncode, done.stderr) == (2, wanted)


def test_an_error_of_our_own_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not name a place that the user can mend is no mistake of the user's."""
    app = typer.Typer()

    @app.command()
    def main() -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(sys, "argv", ["main"])
    with pytest.raises(TimeoutError):
        run_app(app, "main")


def _run(folder: Path) -> Path:
    """Makes the folder of a training that has one checkpoint, as far as averaging asks before it begins to write."""
    (folder / "checkpoints" / "00000001").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    return folder


def test_a_command_is_known_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With quotation marks where a shell needs them; a function that another process calls has its changes alone."""
    module, typed = "workflows.reproduce_table3", ["--rows", "base,my row", "--store", "/tmp/a"]
    monkeypatch.setattr(sys, "argv", ["/home/me/workflows/reproduce_table3.py", *typed])
    assert command_line(module, "").typed == f"python -m {module} --rows 'base,my row' --store /tmp/a"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest", "-q"])
    assert command_line(module, "--set seed=2").typed == f"python -m {module} --set seed=2"
    assert TypedCommand(typed="one").identity() == TypedCommand(typed="other").identity()
