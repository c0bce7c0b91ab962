"""workflows.doctor.machine: libraries, limits and memory, each as it is and as it should not be."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pipeline.hardware import compute_dtype, multiplies_bfloat16
from workflows.doctor import machine


def _installed(folder: Path, name: str, version: str, *more: str) -> None:
    """Writes what pip writes about a library."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *more]))


def test_what_is_installed_here_is_within_the_bounds() -> None:
    """As it must be for these tests; torch and Ray have lines of their own, with their versions."""
    found = {one.name: one for one in (machine.python(), *machine.libraries())}
    assert list(found) == ["python", "torch", "ray", "libraries"]
    assert {one.verdict for one in found.values()} == {"ok"}
    assert torch.__version__ in found["torch"].found
    assert "<2.14" in found["torch"].found


def test_a_wrong_version_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Python, of torch, of another library; one that is missing; optional ones do not count."""
    needs = ("torch>=2.11", "ray", "rich>=99", "no-such-library>=1", "neither; extra == 'dev'")
    _installed(tmp_path, "aiayn", "9", "Requires-Python: >=99", *(f"Requires-Dist: {one}" for one in needs))
    _installed(tmp_path, "torch", "1.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {one.name: one for one in (machine.python(), *machine.libraries())}
    assert {name: one.verdict for name, one in found.items()} == {
        "python": "fails",
        "torch": "fails",
        "ray": "ok",
        "libraries": "fails",
    }
    assert found["torch"].found == "1.0 (the project takes >=2.11)"
    assert "is not >=99; no-such-library is not installed" in found["libraries"].found
    assert "neither" not in found["libraries"].found
    assert all(one.remedy for one in found.values() if one.verdict == "fails")


def test_devices_are_those_of_torch() -> None:
    """What torch finds; compilation and NCCL are for GPUs alone."""
    found = {one.name: one for one in machine.devices()}
    with_gpu = torch.cuda.is_available()
    assert list(found) == ["gpu", "bfloat16", *(["torch.compile", "nccl"] if with_gpu else [])]
    assert found["gpu"].found.startswith("none") != with_gpu
    device = "cuda" if with_gpu else "cpu"
    native = multiplies_bfloat16(device)
    assert found["bfloat16"].verdict == ("ok" if native else "warning")
    in_float32 = compute_dtype(device) is torch.float32
    assert ("trainings compute in float32" in found["bfloat16"].found) == (native and in_float32)


def test_open_files_are_limited() -> None:
    """Ray raises the soft limit itself, so the hard one counts."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[1])))\n"
        "from workflows.doctor.machine import open_files; print(open_files().verdict)"
    )
    for most, verdict in (("1024", "warning"), ("4096", "ok")):
        done = subprocess.run([sys.executable, "-c", script, most], capture_output=True, text=True, check=True)
        assert done.stdout == f"{verdict}\n"


def test_memory_is_judged_by_what_is_available(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More than there is cannot be had, whatever is asked for."""
    available = machine._available_bytes()
    assert 0 < available < 10**14
    for least, little, verdict in ((1, 2, "ok"), (1, 10**15, "warning"), (10**15, 10**15, "fails")):
        monkeypatch.setattr(machine, "LEAST_MEMORY_BYTES", least)
        monkeypatch.setattr(machine, "LITTLE_MEMORY_BYTES", little)
        found = machine.memory()
        assert (found.verdict, bool(found.remedy)) == (verdict, verdict != "ok")
    for little, verdict in ((1, "ok"), (10**18, "warning")):
        monkeypatch.setattr(machine, "LITTLE_SHARED_BYTES", little)
        assert [one.verdict for one in machine.shared_memory(tmp_path)] == [verdict]
    assert list(machine.shared_memory(tmp_path / "none")) == []
