"""What the tests of infra/ share: its files, the versions they must name, and what `ray` accepts."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from ray.scripts.scripts import cli

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
"""Each package of constraints.txt with its version."""


def load(name: str) -> Any:
    """Reads a YAML file of infra/."""
    return yaml.safe_load((INFRA / name).read_text(encoding="utf-8"))


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of infra/Dockerfile, each with its arguments on one line."""
    text = (INFRA / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def copied_into_the_image() -> set[str]:
    """The files and folders of the repository that infra/Dockerfile copies."""
    copies = [arguments for name, arguments in dockerfile() if name == "COPY" and not arguments.startswith("--from")]
    return {source for arguments in copies for source in arguments.split()[:-1]}


def ray_options(words: list[str]) -> dict[str, Any]:
    """Parses `ray COMMAND ARGUMENTS` as Ray would, without running it; returns the values."""
    assert words[0].rpartition("/")[2] == "ray", words
    return dict(cli.commands[words[1]].make_context(words[1], words[2:]).params)
