"""The files of examples/: the commands in their headers run as written."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from workflows import reproduce_table3

ROOT = Path(__file__).parents[1]
H100 = ["--gpus", "1", "--gpu", "h100"]
"""Hardware named, so that the forecast measures none."""
TINY = [
    "corpora.en-de.train_pairs=600",
    "corpora.en-de.dev_pairs=20",
    "corpora.en-de.test_pairs=20",
    "vocabulary.size=300",
    "grid.training.updates=4",
    "grid.training.checkpoint_updates=4",
    "grid.training.validation_updates=4",
    "grid.training.model.d_model=32",
]


def _command(example: Path) -> list[str]:
    """The arguments of `python` in the example's header."""
    command = re.search(r"^# +python (-m workflows\..*)$", example.read_text(), re.MULTILINE)
    assert command, f"{example} has no command in its header"
    return shlex.split(command[1])


def _planned(example: Path, folder: Path) -> str:
    """What the example's command prints with --plan, typed in `folder`."""
    arguments = [*dict.fromkeys([*_command(example), "--plan"]), *H100, "--store", str(folder / "runs")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_an_experiment_changes_what_it_names(tmp_path: Path) -> None:
    """The plan of the smaller vocabulary has both pairs' base models, with as many parameters as its pieces make."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    planned = _planned(ROOT / "examples" / "multi30k_smaller_vocabulary.toml", tmp_path)
    trainings = re.findall(r"^(en-\w\w \w+) +(\d\.\d) M ", planned, re.MULTILINE)
    assert trainings == [("en-de base", "3.7"), ("en-fr base", "3.9")]  # 256 more for each piece: 4 000 and 5 000


def test_rows_of_ones_own_stand_behind_the_papers(tmp_path: Path) -> None:
    """The plan has the rows asked for, in the order of the table, base with the seeds that tell the noise."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    planned = _planned(ROOT / "examples" / "table3_own_rows.toml", tmp_path)
    trained = re.findall(r"^train en-de (\w+(?: seed \d)?) +to run", planned, re.MULTILINE)
    assert trained == ["base seed 1", "base seed 2", "base seed 3", "B1", "F1", "F2", "F3", "F4"]


def test_text_of_ones_own_is_found_beside_its_description(tmp_path: Path) -> None:
    """With the files it names beside it the description makes a DAG over its language pair."""
    example = ROOT / "examples" / "own_text.toml"
    text = example.read_text()
    (tmp_path / example.name).write_text(text)
    for name in re.findall(r'"([\w.]+\.(?:en|cs)(?:\.gz)?)"', text):
        (tmp_path / name).write_text(f"{name}\n")
    assert "train en-cs base" in _planned(example, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_row_of_ones_own_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1 of the example, shrunk to four updates, ends in the table as a measured row with nothing printed beside it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    example = ROOT / "examples" / "table3_own_rows.toml"
    reproduce_table3.main(config=example, overrides=TINY, asked="F1", store=tmp_path)
    (table,) = tmp_path.glob("store/tabulating-*/table3.json")
    (row,) = json.loads(table.read_text())["rows"]
    assert (row["name"], row["state"], row["printed"]) == ("F1", "measured", None)
    assert row["change"] == "N 1, d_ff 768"
