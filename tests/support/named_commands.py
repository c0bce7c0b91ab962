"""The project's commands in texts, checked against the real applications."""

import re
import shlex
from typing import Any

import typer

from benchmarks import decoding, gpu, preparation, training
from tests.support.command_line import APPS

COMMANDS: dict[str, Any] = {
    name.replace("workflows.cli", "aiayn"): typer.main.get_command(app)
    for name, app in {
        **APPS,
        "benchmarks.decoding": decoding.app,
        "benchmarks.gpu": gpu.app,
        "benchmarks.preparation": preparation.app,
        "benchmarks.training": training.app,
    }.items()
}


def commands_in(text: str) -> list[list[str]]:
    """The project's command lines in code blocks and backticks, each as words from the command's name on."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()] + re.findall(
        r"`([^`\n]+)`", text
    )
    commands = []
    for line in lines:
        words = shlex.split(re.sub(r"(?<=\w)'s\b", "s", line), comments=True)
        names = [index for index, word in enumerate(words) if word.removeprefix(".venv/bin/") in COMMANDS]
        if names:
            commands.append([words[names[0]].removeprefix(".venv/bin/"), *words[names[0] + 1 :]])
    return commands


def unknown(words: list[str]) -> list[str]:
    command, rest = COMMANDS[words[0]], words[1:]
    while (below := getattr(command, "commands", None)) and rest and not rest[0].startswith("-"):
        if rest[0] not in below:
            return [rest[0]]
        _, command, rest = command.resolve_command(typer.Context(command), rest)
    options = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    return [word for word in rest if word.startswith("--") and word not in options | {"--help"}]
