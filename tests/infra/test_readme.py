"""infra/README.md: the commands that it tells one to type."""

import re
import shlex
import subprocess

import pytest

from tests.support.infra_files import INFRA, ROOT, load, ray_options
from tests.support.named_commands import parsed
from workflows.profiles.loading import load_profile

TEXT = (INFRA / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
LINES = [line for kind, block in BLOCKS for line in block.splitlines() if kind != "text"]  # what a terminal has shown


def starting(*words: str) -> list[list[str]]:
    """The commands in blocks that begin with `words`, split as a shell would."""
    return [command for line in LINES if (command := shlex.split(line))[: len(words)] == list(words)]


def test_all_lines_are_shell() -> None:
    """bash parses them, and each begins with a program that this file checks or a plain one."""
    assert subprocess.run(["bash", "-n", "-c", "\n".join(LINES)], check=False).returncode == 0
    programs = {line.split()[0] for line in LINES}
    assert programs == {"pip", "ray", "aws", "docker", "kubectl", "cd", "(umask"}


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("ray ")])
def test_rays_commands_have_these_options_and_files(line: str) -> None:
    """A command that `ray exec` runs is one of the project's, from where the launcher installs it."""
    options = ray_options(shlex.split(line))
    name = options.get("cluster_config_file")
    if name is None:
        return
    assert (ROOT / name).is_file()
    if cmd := options.get("cmd"):
        python, _, *words = shlex.split(cmd)
        assert any(python.removesuffix("python") in c for c in load(name.removeprefix("infra/"))["setup_commands"])
        profile = parsed(words)["profile"]
        load_profile(profile, data=None, files=[], config=None, overrides=[])
