"""infra/onpremise.yaml by the commands of infra/README.md: three machines with sshd, one of them lost in training."""

import secrets
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.clusters import ROOT, SMALL, TIMEOUT_S, Terminal, podman, requires_clusters, succeeds, typed
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, requires_clusters, pytest.mark.timeout(4 * TIMEOUT_S)]

MACHINES = {f"aiayn-machine-{i}": f"10.89.77.{i}" for i in (10, 11, 12)}
STATUS = "RAY_AUTH_MODE=token ~/aiayn/bin/ray status"


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Path]:
    """The SSH key to three machines that share a folder. The first machine is the head."""
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    podman("network", "create", "--subnet", "10.89.77.0/24", "aiayn-machines")
    try:
        for name, address in MACHINES.items():
            where = f"--network aiayn-machines --ip {address} --hostname {name} --volume aiayn-shared:/shared".split()
            podman("run", "--detach", "--init", "--name", name, "--cpuset-cpus=0,1", "--shm-size=2g", *where, "host")
            public = shlex.quote(path.with_suffix(".pub").read_text(encoding="utf-8").strip())
            keys = f"echo {public} >~/.ssh/authorized_keys; chmod 600 ~/.ssh/authorized_keys"
            podman("exec", "--user", "aiayn", name, "sh", "-c", keys)
        yield path
    finally:
        podman("rm", "--force", "--time", "0", "--ignore", *MACHINES)
        podman("volume", "rm", "--force", "aiayn-shared")
        podman("network", "rm", "aiayn-machines")


def test_the_typed_commands_go_on_without_a_lost_machine(key: Path, tmp_path: Path) -> None:
    """Every machine joins, and after the loss of one of the two with training workers, the others finish the table."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    file = clone / "infra" / "onpremise.yaml"
    text = file.read_text(encoding="utf-8").replace("192.0.2.", "10.89.77.").replace("~/.ssh/aiayn", str(key))
    file.write_text(text, encoding="utf-8")
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text(secrets.token_hex(32), encoding="utf-8")
    terminal = Terminal(clone, HOME=str(tmp_path))
    up, table, down = [line for line in typed("Machines of your own") if "infra/onpremise.yaml" in line]
    head, *others = MACHINES
    terminal.run(f"{up} --yes")
    try:
        cpus = f"cd; {STATUS} | grep -q '/6.0 CPU'"
        until(lambda: succeeds(["exec", "--user", "aiayn", head, "sh", "-c", cpus]), TIMEOUT_S, lambda: _ray_log(head))
        four = "--set recipes.base.training.workers=4 --set recipes.base.training.budget_tokens=1200"
        command = table.replace(" --profile multi30k", "").removesuffix("'") + f" {shlex.join(SMALL)} {four}'"
        running = terminal.start(command.replace(" --tmux", ""))
        terminal.reach(300, running)
        lost = next(name for name in others if "TrainWorker" in podman("exec", name, "ps", "aux"))
        podman("kill", lost)
        assert running.wait(TIMEOUT_S) == 0, terminal.printed
        assert "report: /shared/aiayn/table2/embedded/report.html" in terminal.printed
    finally:
        terminal.run(f"{down} --yes")
    kept = [name for name in MACHINES if name != lost]
    until(lambda: not any("raylet" in podman("exec", name, "ps", "aux") for name in kept), TIMEOUT_S, lambda: kept)


def _ray_log(head: str) -> str:
    return podman("exec", head, "sh", "-c", "tail -n 40 /tmp/ray/session_latest/logs/monitor.*")
