"""Writes the locks beside it: the versions of constraints.txt that `make reproduce` installs, with the wheels' sha256.

    python locks/write.py https://download.pytorch.org/whl/cpu    # on Linux; `make constraints` runs it

base.txt has everything but torch, torch-cpu.txt the CPU builds of torch in the index given, torch-cuda.txt PyPI's torch
with the CUDA packages that it requires. The wheels are those for CPython 3.11 to 3.13 on Linux and macOS.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote
from urllib.request import Request, urlopen

LOCKS = Path(__file__).parent
PYPI = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
WHEEL = re.compile(
    r"-(cp31[123]-cp31[123]|cp3([2-9]|10|11)-abi3|(py2\.)?py3-none)-(any|\S*manylinux\S*|\S*macosx\S*)\.whl"
)
WITH_TORCH = re.compile(r"torch|triton|nvidia-.*|cuda-.*")


def resolved() -> list[tuple[str, str]]:
    """Name and version of each package that pip would install from the public index, with no other configured."""
    public = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": PYPI, "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    report = subprocess.run(
        [*pip, "--constraint", "constraints.txt", "."],
        cwd=LOCKS.parent,
        env=os.environ | public,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    packages = [item["metadata"] for item in json.loads(report)["install"] if not item["requested"]]
    return sorted((re.sub(r"[-_.]+", "-", each["name"]).lower(), each["version"]) for each in packages)


def pypi_wheels(name: str, version: str) -> dict[str, str]:
    """Sha256 by file name."""
    json_form = {"Accept": "application/vnd.pypi.simple.v1+json"}
    with urlopen(Request(f"{PYPI}/{name}/", headers=json_form)) as answer:
        return wheels({file["filename"]: file["hashes"]["sha256"] for file in json.load(answer)["files"]}, version)


def cpu_wheels(index: str, version: str) -> dict[str, str]:
    """Sha256 by file name, of the index's CPU builds of torch."""
    with urlopen(f"{index}/torch/") as answer:
        links = re.findall(r'([^/"]+\.whl)#sha256=(\w+)', answer.read().decode())
    return wheels({unquote(name): digest for name, digest in links}, f"{version}+cpu")


def wheels(files: dict[str, str], version: str) -> dict[str, str]:
    return {name: digest for name, digest in files.items() if name.split("-")[1] == version and WHEEL.search(name)}


def entry(name: str, version: str, found: dict[str, str]) -> str:
    if not found:
        sys.exit(f"locks: the index has no wheel of {name} {version} for CPython 3.11 to 3.13")
    return " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(found.values()))])


def write(name: str, entries: list[str]) -> None:
    (LOCKS / name).write_text("\n".join(["# Written by `make constraints`.", *entries, ""]), encoding="utf-8")


packages = resolved()
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda each: pypi_wheels(*each), packages))
entries = {each[0]: entry(*each, files) for each, files in zip(packages, found, strict=True)}
write("base.txt", [text for name, text in entries.items() if not WITH_TORCH.fullmatch(name)])
write("torch-cuda.txt", [text for name, text in entries.items() if WITH_TORCH.fullmatch(name)])
torch = dict(packages)["torch"]
for_macos = {name: digest for name, digest in found[packages.index(("torch", torch))].items() if "macosx" in name}
try:
    write("torch-cpu.txt", [entry("torch", torch, cpu_wheels(sys.argv[1], torch) | for_macos)])
except URLError as error:
    cpu = LOCKS / "torch-cpu.txt"
    if f"\ntorch=={torch} " not in cpu.read_text(encoding="utf-8"):
        sys.exit(f"locks: {sys.argv[1]}: {error.reason}; torch-cpu.txt has another version of torch than {torch}")
    print(f"locks: {sys.argv[1]}: {error.reason}; torch-cpu.txt, which has the same version of torch, stays")
