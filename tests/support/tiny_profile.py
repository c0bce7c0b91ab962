"""The smallest profile with all features of the real ones: a model of one layer, trained in seconds."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

TEXT = {f"corpora.en-de.{split}_pairs": pairs for split, pairs in (("train", 600), ("dev", 20), ("test", 24))}
TEXT |= {"vocabulary.size": 300}
MODEL = {"n_layers": 1, "d_model": 32, "d_ff": 64, "d_k": 16, "d_v": 16}


def training(of: str, updates: int, checkpoints: int = 2, validations: int = 2, **more: Any) -> dict[str, Any]:
    """Settings of `recipes.base` or `grid`: a model of one layer, with these numbers of checkpoints and validations."""
    every = {"checkpoint_updates": updates // checkpoints, "validation_updates": updates // validations}
    model = {f"model.{name}": value for name, value in MODEL.items()}
    return {f"{of}.training.{name}": value for name, value in ({"updates": updates} | every | model | more).items()}


TABLE_2: dict[str, Any] = {**TEXT, **training("recipes.base", 10, checkpoints=5)}
TABLE_3: dict[str, Any] = {**TEXT, "grid.base_seeds": 2, **training("grid", 8)}
CELL = ("--pairs", "en-de", "--models", "base")
"""The cell of Table 2 in TABLE_2."""


def overrides(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def toml(settings: Mapping[str, Any]) -> str:
    return "".join(f"{override}\n" for override in overrides(settings))


def options(settings: Mapping[str, Any]) -> list[str]:
    return [word for override in overrides(settings) for word in ("--set", override)]


def command_of_table2(store: str | Path, settings: Mapping[str, Any] = TABLE_2, flags: Sequence[str] = ()) -> list[str]:
    module = [sys.executable, *flags, "-m", "workflows.reproduce_table2"]
    return [*module, *CELL, "--store", str(store), *options(settings)]


class MadeTable2(NamedTuple):
    """A store with one finished cell of Table 2, and with MLflow's files beside it."""

    store: Path
    output: str
    """The command's output."""

    @property
    def folder(self) -> Path:
        return self.store / "table2" / "embedded"

    @property
    def table(self) -> dict[str, Any]:
        return json.loads((self.folder / "table2.json").read_text())

    @property
    def base(self) -> dict[str, Any]:
        rows = self.table["tables"][0]["rows"]
        (row,) = [row for row in rows if row["origin"] == "measured" and "base" in row["name"]]
        return row["values"]

    def copied(self, to: Path) -> "MadeTable2":
        """A copy for a test to change. Its next command corrects the paths in MLflow's database."""
        copytree(self.store, to, symlinks=True)
        return MadeTable2(to, self.output)

    def stages(self) -> dict[str, int]:
        kinds = [folder.name.rpartition("-")[0] for folder in (self.store / "store").iterdir()]
        return {kind: kinds.count(kind) for kind in kinds}


def run_in_process(*command: str, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
