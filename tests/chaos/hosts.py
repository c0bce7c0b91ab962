"""Hosts on this machine: network namespaces with their own addresses, in which the project cannot be imported.

    with hosts(3) as (head, *others):
        head.start([PYTHON, "-m", "http.server"], log)

Each has its own interfaces and loopback: whoever gives a neighbour the address 127.0.0.1 finds nobody there. An empty
folder hides the repository. The processes see Python and the libraries of the running one, but not its editable
installation. Needs Linux, root and iproute2.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
"""The Python of the virtual environment's base."""
SUBNET = "10.213.77"
GONE_S = 30
_calls = count()


class Host:
    def __init__(self, name: str, address: str, libraries: Path) -> None:
        self.name, self.address, self._libraries = name, address, libraries

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_", "PYTHON"))}
        return kept | {"PYTHONPATH": str(self._libraries)}

    def start(
        self, command: Sequence[str | Path], log: Path, variables: Mapping[str, str], sees_project: bool = False
    ) -> subprocess.Popen[bytes]:
        shown = shlex.join(map(str, command))
        if not sees_project:
            site = shlex.quote(sysconfig.get_paths()["purelib"])
            shown = (
                f"mount --bind {site} {shlex.quote(str(self._libraries))} && "
                f"mount -t tmpfs none {shlex.quote(str(ROOT))} && exec {shown}"
            )
        with log.open("wb") as output:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, "sh", "-c", shown],
                cwd=ROOT if sees_project else log.parent,
                env={**variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def processes(self) -> list[psutil.Process]:
        found = []
        for pid in _ip("netns", "pids", self.name).split():
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return found

    def power_off(self) -> None:
        _ip("netns", "exec", self.name, "ip", "link", "set", "eth0", "down")
        end_s = time.monotonic() + GONE_S
        while processes := self.processes():
            assert time.monotonic() < end_s, processes
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(processes, timeout=1)


def can_make_hosts() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("ip") is not None


@contextmanager
def hosts(n: int, folder: Path) -> Iterator[list[Host]]:
    """Provides `n` hosts on one network while the body runs, and ends all their processes; `folder` is theirs."""
    # Of each call its own: the kernel takes a while to remove the interfaces of a namespace that is gone.
    tag = f"{os.getpid() % 10_000:04d}{next(_calls):02d}"
    bridge, libraries = f"aibr{tag}", folder / "libraries"
    libraries.mkdir(parents=True)
    made = [Host(f"aiayn{tag}-{i}", f"{SUBNET}.{i + 1}", libraries) for i in range(n)]
    _ip("link", "add", bridge, "type", "bridge")
    try:
        _ip("link", "set", bridge, "up")
        for i, host in enumerate(made):
            _ip("netns", "add", host.name)
            _ip("link", "add", f"aiv{tag}{i}", "type", "veth", "peer", "name", "eth0", "netns", host.name)
            _ip("link", "set", f"aiv{tag}{i}", "master", bridge, "up")
            inside = ("-n", host.name)
            _ip(*inside, "addr", "add", f"{host.address}/24", "dev", "eth0")
            _ip(*inside, "link", "set", "eth0", "up")
            _ip(*inside, "link", "set", "lo", "up")
            _ip(*inside, "route", "add", "default", "dev", "eth0")  # by which programs find their own address
        yield made
    finally:
        for host in made:
            with suppress(subprocess.CalledProcessError):
                host.power_off()
                _ip("netns", "del", host.name)
        _ip("link", "del", bridge)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
