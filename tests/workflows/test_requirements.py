"""What is missing or in the way is one line at a command's start, whichever module would have failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import UserError
from workflows.engine.cluster import cluster
from workflows.requirements import ROOT, hiding, requirements, unmet

AIAYN = str(Path(sys.executable).with_name("aiayn"))
TABLE_1 = [sys.executable, "-m", "workflows.reproduce_table1"]


def _typed(*command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["model.py", "pipeline/__init__.py", "torch.py"])
@pytest.mark.parametrize("where", ["folder", "path", "workers"])
def test_a_file_over_a_package_is_named(name: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the working directory or PYTHONPATH; for `aiayn`, whose Ray workers look there first, before Ray starts."""
    (file := tmp_path / "mine" / name).parent.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    file.write_text("")
    if where == "workers":
        monkeypatch.chdir(tmp_path / "mine")
        with pytest.raises(UserError, match=f"{name} hides a package"), cluster("127.0.0.1:1"):
            pass
        return
    if where == "folder":
        done = _typed(*TABLE_1, "--plan", folder=tmp_path / "mine")
    else:
        done = _typed(AIAYN, "--version", folder=tmp_path / "other", PYTHONPATH=f"{tmp_path / 'mine'}:{ROOT}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"error: {file} hides a package of this name; rename it" in done.stderr


def test_a_folder_without_modules_hides_nothing(tmp_path: Path) -> None:
    """Such as a model that was exported to a folder of this name."""
    (tmp_path / "model").mkdir()
    assert hiding([str(tmp_path)]) is None
    assert hiding([str(ROOT), str(tmp_path)]) is None


def test_a_library_that_is_missing_or_too_old_is_named(tmp_path: Path) -> None:
    """As after `git pull`: the requirements are the clone's, not those of the installation."""
    for folder in ("model", "pipeline", "workflows"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    text = (ROOT / "pyproject.toml").read_text()
    assert '"rich>=14"' in text
    (tmp_path / "pyproject.toml").write_text(text.replace('"rich>=14"', '"rich>=9999", "no-such-library>=1"'))
    (tmp_path / "constraints.txt").write_text("")
    done = _typed(*TABLE_1, "--plan", folder=tmp_path)
    assert done.returncode == 2
    assert "rich is " in done.stderr
    assert f"; no-such-library is missing (no-such-library>=1): {sys.executable} -m pip install -c" in done.stderr
    assert done.stderr.count("\n") == 1


def test_versions_are_compared_as_numbers() -> None:
    assert [*unmet(requirements(), too_new=True)] == []
    assert [*unmet(["pytest[x]>=9.0.0,<999; python_version > '3'"], too_new=True)] == []
    assert [*unmet(["pytest<2"])] == [*unmet(["no-such-library>=1"], missing=False)] == []
    too_new = unmet(["rich>=1000.1", "pytest<2"], too_new=True)
    assert [text.partition(" is ")[0] for text in too_new] == ["rich", "pytest"]
