"""infra/Dockerfile and .dockerignore: what is copied exists, the versions are the pinned ones, nobody is root."""

import re

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.support.infra_files import PINNED, PROJECT, ROOT, copied_into_the_image, dockerfile, load

INSTRUCTIONS = dockerfile()
COPIED = copied_into_the_image()


def test_what_is_copied_exists_and_nothing_else_is_let_through() -> None:
    """.dockerignore refuses all but that, so neither text nor secrets can get into an image."""
    assert all((ROOT / source).exists() for source in COPIED)
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [rule for rule in rules if rule and not rule.startswith("#")]
    assert patterns[0] == "*"
    assert {rule[1:] for rule in patterns if rule.startswith("!")} == COPIED


def test_versions_are_the_pinned_ones() -> None:
    """Python suits the project; Ray's and torch's pins suit their ranges; the extra has the same range of Ray."""
    (base,) = [arguments for name, arguments in INSTRUCTIONS if name == "ARG" and arguments.startswith("BASE=")]
    python = re.fullmatch(r"BASE=python:(\d+\.\d+)-slim", base)
    assert python
    assert SpecifierSet(PROJECT["requires-python"]).contains(python[1])
    ranges = {(r := Requirement(line)).name: r.specifier for line in PROJECT["dependencies"]}
    extra = {(r := Requirement(line)).name: r for line in PROJECT["optional-dependencies"]["cluster"]}
    assert ranges["torch"].contains(PINNED["torch"])
    assert ranges["ray"].contains(PINNED["ray"])
    assert extra["ray"].specifier == ranges["ray"]
    assert extra["ray"].extras == {"default"}, "the dashboard, which takes jobs and answers probes"
    installs = [arguments for name, arguments in INSTRUCTIONS if name == "RUN" and "pip install" in arguments]
    assert any('--constraint constraints.txt ".[cluster]"' in arguments for arguments in installs)


def test_the_container_is_not_root() -> None:
    """The user is the one of the manifests, a number, and owns the folders that volumes are mounted on."""
    (user,) = [arguments for name, arguments in INSTRUCTIONS if name == "USER"]
    pod = load("kubernetes/raycluster.yaml")["spec"]["headGroupSpec"]["template"]["spec"]["securityContext"]
    assert user == f"{pod['runAsUser']}:{pod['runAsGroup']}"
    (run,) = [arguments for name, arguments in INSTRUCTIONS if name == "RUN" and "chown" in arguments]
    owned = re.search(r"chown (\S+) (.*)", run)
    assert owned
    assert owned[1] == user
    mounted = {
        m.rpartition(":")[2] for s in ("driver", "mlflow") for m in load("compose.yaml")["services"][s]["volumes"]
    }
    assert mounted <= set(owned[2].split())
