"""User errors are one line on standard error, with exit status 2."""

import errno
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from tests.support.command_line import APPS, CommandLine, Done
from workflows.cli.console import run_app
from workflows.command_line import CommandLine as TypedCommand
from workflows.command_line import command_line
from workflows.experiments import EXPERIMENTS


def _assert_one_line(done: Done, message: str) -> None:
    """No traceback; standard output has only the settings in force and the plan's first line."""
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr
    assert re.fullmatch(r"(settings of profile .*\n)?(monitor: .*\n)?(\d+ stages to run\n)?", done.stdout)


def test_a_process_ends_with_one_line_and_status_2(tmp_path: Path, command_line: CommandLine) -> None:
    arguments = ["workflows.reproduce_table2", "--address", "127.0.0.1:9", "--store", str(tmp_path)]
    _assert_one_line(command_line.in_process(*arguments), "no Ray cluster answers")
    assert not (tmp_path / "table2").exists()


def test_no_mlflow_begins_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: CommandLine) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://:5000")
    done = command_line.here("workflows.reproduce_table2", "--store", str(tmp_path))
    _assert_one_line(done, "MLflow at http://:5000 does not answer (Invalid URL")
    assert not (tmp_path / "table2").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workflows.reproduce_table1", "--set", "layers.kernel=4"], "kernel is 4; it must be odd"),
        (["workflows.reproduce_table1", "--updates", "5"], "--updates does not affect Table 1, which trains no model"),
        (["workflows.reproduce_table4", "--treebank", "none"], "is not a treebank"),
        (["workflows.reproduce_table2", "--profile", "huge"], "no profile 'huge'; choose one of embedded, multi30k"),
        (["workflows.reproduce_table2", "--beam", "4"], "see workflows.reproduce_table2 --help"),
        (["workflows.cli", "table2", "--beam", "4"], "see aiayn table2 --help"),
        (["workflows.reproduce_table2", "--pairs", "en-cs"], "--pairs en-cs: the profile has en-de, en-fr"),
        (["workflows.reproduce_table2", "--pairs", ""], "--pairs '': the profile has en-de, en-fr"),
        (["workflows.reproduce_table3", "--store", ""], "--store '': name a folder"),
        (["workflows.reproduce_table2", "--models", "base,"], "--models '': the profile has base, big"),
        (["workflows.cli", "forecast", "table2", "--until", "x"], "--until does not affect a forecast; drop it"),
        (["workflows.reproduce_table2", "--mermaid"], "--mermaid only affects --plan; add --plan or drop it"),
        (["workflows.reproduce_table2", "--plan", "--json", "-v"], "--json and --verbose each print the plan"),
        (["workflows.cli", "forecast", "table2", "--gpu", "k80"], "--gpu k80: choose one of h200, h100, a100"),
        (["workflows.cli", "forecast", "table2", "--gpus", "8"], "--gpus 8: torch finds no GPU here; name one with"),
        (["workflows.cli", "forecast", "table1", "--gpu", "h100"], "table1 trains nothing; aiayn table1 --plan shows"),
        (["workflows.cli", "forecast", "figures"], "No such command 'figures'; see aiayn forecast --help"),
        (["workflows.reproduce_table3", "--plan", "--rows", "F"], "--rows F: no such row in Table 3"),
        (["workflows.cli", "score", "--hyp", "no.txt", "--ref", "no.txt", "--lang", "de"], "no.txt"),
        (["workflows.cli", "score", "--hyp", "x", "--ref", "x", "--lang", "en-de"], "'en-de': name one language"),
        (["workflows.cli", "score", "--hyp", "x", "--ref", "x", "--lang", ""], "--lang '': name one language, e.g. de"),
        (["workflows.cli", "translate", "no-such-model"], "no-such-model"),
        (["workflows.cli", "translate", ".", "--beam-size", "1000000"], "beam_size"),
        (["workflows.cli", "clean", "--store", "no-such-store"], "not a store: it has no folder"),
        (["workflows.cli", "train", ".", "--out", "x"], "holds no dataset.json; name a folder written by `aiayn prep"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], message: str, command_line: CommandLine) -> None:
    _assert_one_line(command_line.here(*arguments), message)


def test_an_option_of_one_value_refuses_a_second(command_line: CommandLine) -> None:
    """Every such option of every command, before anything is read; also a key of --set, by whatever option."""
    commands = [([module], get_command(app)) for module, app in APPS.items()]
    for words, command in commands:  # grows by subcommands
        commands += [([*words, name], each) for name, each in getattr(command, "commands", {}).items()]
        for option in command.params:
            if option.param_type_name == "option" and not (option.multiple or vars(option)["is_flag"]):
                done = command_line.here(*words, option.opts[0], "1", f"{option.opts[0]}=2")
                _assert_one_line(done, f"{option.opts[0]} is given twice")
    assert len(commands) > 20
    twice = ["--set", "timing.rounds=1", "--set", "timing.rounds = 2"]
    done = command_line.here("workflows.reproduce_table1", "--plan", *twice)
    _assert_one_line(done, "timing.rounds is set twice")


TEXT = ["workflows.cli", "score", "--lang", "de", "--ref", "FILE", "--hyp"]
SPLIT = ["workflows.cli", "split", "FILE", "--out"]
AVERAGE = ["workflows.cli", "average", "RUN", "--last", "1", "--out"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workflows.reproduce_table1", "--profile", "cpu", "--store", "/proc/nope"], "/proc/nope: No such file"),
        (["workflows.reproduce_table2", "--store", "FILE"], "file is a file; name a folder"),
        (["workflows.reproduce_table2", "--store", "FILE/x"], "file/x/.locks: Not a directory"),
        (["workflows.reproduce_table2", "--plan", "--config", "FOLDER"], "Is a directory"),
        (["workflows.cli", "clean", "--store", "FILE"], "file is a file; name a folder"),
        ([*AVERAGE, "/proc/nope"], "/proc/.locks: No such file or directory"),
        ([*AVERAGE, "FOLDER/" + "x" * 300], "File name too long"),
        ([*TEXT, "FOLDER"], "Is a directory"),
        ([*SPLIT, "new"], "name two files, text.en text.de, or one and its languages, --source en --target de"),
        ([*SPLIT, "new", "--source", "en", "--target", "eng"], "source en and target eng are one language; name two"),
        ([*SPLIT, "FILE", "--source", "en", "--target", "de"], "file already exists; move it elsewhere or choose"),
        ([*SPLIT, "FOLDER/new", "x.de", "--source", "en"], "cannot read x.de: No such file or directory; check the"),
        (["workflows.cli", "score-trees", "--gold", "FOLDER", "--test", "FILE"], "Is a directory"),
    ],
)
def test_a_bad_place_is_one_line(arguments: list[str], message: str, tmp_path: Path, command_line: CommandLine) -> None:
    """A folder cannot be created, a file is in a folder's place, or a folder in a file's."""
    (tmp_path / "file").write_text("ein Hund.\n")
    places = {"FILE": str(tmp_path / "file"), "FOLDER": str(tmp_path), "RUN": str(_run(tmp_path / "run"))}
    for word, place in places.items():
        arguments = [argument.replace(word, place) for argument in arguments]
    _assert_one_line(command_line.here(*arguments), message)


PLAN = "-m workflows.reproduce_table1 --plan --profile cpu --config größe.toml --store ."


def _in_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "größe.toml").write_text("")
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("{} > /dev/full", 2, "the output: No space left on device; free some space and run the same command again"),
        ("mkdir gone; cd gone; rmdir ../gone; {}", 2, "the working directory no longer exists; change to another one"),
        ("set -o pipefail; {} | true", 1, ""),  # a reader that leaves
    ],
)
def test_a_place_that_goes_is_one_line(command: str, status: int, message: str, tmp_path: Path) -> None:
    done = _in_shell(command.format(f"{sys.executable} {PLAN}"), tmp_path)
    assert (done.returncode, done.stderr) == (status, f"error: {message}\n" * bool(message))


@pytest.mark.parametrize(
    ("environment", "redirected", "status", "stdout", "stderr"),
    [
        ("", ">&-", 0, "", ""),
        ("", "--set seed=1 <&- >&-", 2, "", "there is no setting 'seed'"),
        ("LC_ALL=C", "2>&-", 0, "settings of profile cpu; changed by --config 'größe.toml'", ""),
        ("PYTHONIOENCODING=ascii", "", 0, r"settings of profile cpu; changed by --config 'gr\xf6\xdfe.toml'", ""),
        ("PYTHONIOENCODING=ascii", "--set größe=1", 2, "", r"'gr\xf6\xdfe'"),
    ],
)
def test_odd_streams(environment: str, redirected: str, status: int, stdout: str, stderr: str, tmp_path: Path) -> None:
    """Closed ones, or of few characters: the command works as usual. Characters outside the encoding are escaped."""
    done = _in_shell(f"{environment} {sys.executable} {PLAN} {redirected}", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1 if stderr else 0), done.stderr
    assert done.stdout.startswith(stdout)
    assert bool(done.stdout) == bool(stdout)
    assert stderr in done.stderr


def test_a_closed_stream_s_number_is_no_other_file_s() -> None:
    """Child processes inherit /dev/null as standard output, which accepts their output."""
    code = (
        "import os, subprocess, sys; from workflows.cli.console import open_streams; open_streams(); print('lost');"
        "subprocess.run(['echo', 'lost too'], check=True);"
        "sys.exit(os.readlink('/dev/fd/1') != '/dev/null' or open(os.devnull).fileno() < 3)"
    )
    done = subprocess.run(["bash", "-c", f'{sys.executable} -c "{code}" >&- <&-'], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (OSError(errno.EIO, "Input/output error", "/mnt/a"), "error: /mnt/a: Input/output error\n"),
        (OSError(errno.EMFILE, "Too many open files"), "error: Too many open files; allow more open files: ulimit -n"),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), None),
    ],
)
def test_what_a_file_system_refuses_is_one_line(
    raised: OSError, message: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors that tests cannot cause: a failing disk or server, or a reached limit. One of our own, without a path that
    the user could fix, keeps its traceback."""
    app = typer.Typer()

    @app.command()
    def main() -> None:
        raise raised

    monkeypatch.setattr(sys, "argv", ["main"])
    with pytest.raises(SystemExit if message else TimeoutError) as ended:
        run_app(app, "main")
    if message:
        assert getattr(ended.value, "code", None) == 2
        assert message in capsys.readouterr().err


def test_without_a_command_there_is_help(command_line: CommandLine) -> None:
    done = command_line.here("workflows.cli")
    assert done.returncode == 2
    assert done.stderr == command_line.here("workflows.cli", "--help").stdout
    assert "\n  table2 " in done.stderr
    done = command_line.here("workflows.cli", "--version")
    assert (done.returncode, done.stdout) == (0, f"aiayn {version('aiayn')}\n")


def _run(folder: Path) -> Path:
    """Writes the folder of a run with one checkpoint, enough for averaging to begin writing."""
    (folder / "checkpoints" / "00000001").mkdir(parents=True)
    for name in ("run.json", "metrics.jsonl"):
        (folder / name).write_text("{}")
    return folder


def test_a_command_is_known_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By either name, quoted for a shell. A function called by another process has only its changes."""
    module, words = "python -m workflows.reproduce_table3", ["--rows", "base,my row", "--store", "/tmp/a"]
    quoted = "--rows 'base,my row' --store /tmp/a"
    for argv, typed in (
        (["/home/me/workflows/reproduce_table3.py", *words], f"{module} {quoted}"),
        (["/home/me/.venv/bin/aiayn", "table3", *words], f"aiayn table3 {quoted}"),
        (["/home/me/workflows/cli/__main__.py", "table3", *words], f"aiayn table3 {quoted}"),
        (["aiayn", "table3"], "aiayn table3"),
        (["reproduce_table3.py", "--config", "gr\udcc3\udcb6\udcc3\udc9fe \udcff"], f"{module} --config 'größe \\xff'"),
        (["/usr/bin/pytest", "table3"], f"{module} --set seed=2"),
    ):
        monkeypatch.setattr(sys, "argv", argv)
        assert command_line("table3", "--set seed=2").typed == typed
    assert TypedCommand(typed="one").identity() == TypedCommand(typed="other").identity()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_one_help_text(name: str, command_line: CommandLine) -> None:
    module = EXPERIMENTS[name].module
    done = command_line.here("workflows.cli", name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == command_line.here(module, "--help").stdout.replace(f"Usage: {module}", f"Usage: aiayn {name}")


def test_a_folder_is_printed_as_it_is_named(tmp_path: Path, command_line: CommandLine) -> None:
    folder = tmp_path / "[bold]my[/bold] :warning: [/]"
    done = command_line.here("workflows.reproduce_table2", "--plan", "--store", str(folder))
    assert done.returncode == 0, done.stderr
    assert f"; store: {folder}\n" in done.stdout
