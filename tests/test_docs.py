"""README.md, CONTRIBUTING.md and docs/: what they name exists, and what they compute is so."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from workflows import attention_figures, reproduce_table1, reproduce_table2, reproduce_table3, reproduce_table4
from workflows.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
COMMANDS = {
    "aiayn": typer.main.get_command(app),
    "workflows.attention_figures": typer.main.get_command(attention_figures.app),
    "workflows.reproduce_table1": typer.main.get_command(reproduce_table1.app),
    "workflows.reproduce_table2": typer.main.get_command(reproduce_table2.app),
    "workflows.reproduce_table3": typer.main.get_command(reproduce_table3.app),
    "workflows.reproduce_table4": typer.main.get_command(reproduce_table4.app),
}


def _commands(text: str) -> list[list[str]]:
    """The command lines of the project in code blocks and in backticks, each as words from the command's name on."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()] + re.findall(
        r"`([^`\n]+)`", text
    )
    shorthand = {"table2": "workflows.reproduce_table2", "table3": "workflows.reproduce_table3"}
    found = []
    for line in lines:
        words = [shorthand.get(word, word) for word in shlex.split(line.replace("'s", "s"), comments=True)]
        names = [index for index, word in enumerate(words) if word.removeprefix(".venv/bin/") in COMMANDS]
        if names:
            found.append([words[names[0]].removeprefix(".venv/bin/"), *words[names[0] + 1 :]])
    return found


def _unknown(words: list[str]) -> list[str]:
    """Subcommands and options that the command has not got."""
    command, rest = COMMANDS[words[0]], words[1:]
    while (below := getattr(command, "commands", None)) and rest and not rest[0].startswith("-"):
        if rest[0] not in below:
            return [rest[0]]
        command, rest = below[rest[0]], rest[1:]
    options = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    return [word for word in rest if word.startswith("--") and word not in options | {"--help"}]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_page_names_exists(name: str) -> None:
    """Links, paths of the repository in code, and options of the project's commands."""
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    paths = re.findall(r"\b((?:model|pipeline|workflows|tests|docs|examples)/[\w./-]*\w)", text)
    missing += [path for path in paths if not (ROOT / path).exists() and not (page.parent / path).exists()]
    missing += [" ".join(words) for words in _commands(text) if _unknown(words)]
    assert not missing


def test_commands_are_found_and_wrong_ones_told() -> None:
    """The check above sees the commands it is for."""
    text = "```\n.venv/bin/python -m workflows.reproduce_table2 --plans\naiayn trane x\n```\n`table3 --rows A`, `aiayn`"
    assert [_unknown(words) for words in _commands(text)] == [["--plans"], ["trane"], [], []]
    assert len(_commands((ROOT / "README.md").read_text(encoding="utf-8"))) > 5


def test_the_fingerprints_computed_by_hand_are_the_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    """The code of docs/architecture.md prints what the page says, which is what the profile's steps are called."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(code, {})
    printed = capsys.readouterr().out.strip()
    assert f"`{printed}`" in text
    pinned = json.loads((ROOT / "tests" / "workflows" / "fingerprints.json").read_text(encoding="utf-8"))["embedded"]
    steps = ("generate en-de", "clean en-de", "vocabulary en-de")
    assert printed.split() == [pinned[step].rpartition("-")[2] for step in steps]
