"""What a reproduced table leaves: artifacts, the folder of its files, and runs in MLflow."""

import json
from pathlib import Path
from typing import Any

from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from workflows.tracking.addresses import default_uri


def artifacts(store: Path) -> set[str]:
    return {folder.name for folder in (store / "store").iterdir()}


def written(output: str) -> tuple[Path, dict[str, Any]]:
    """The table's folder, which the command's output names, and the table in it."""
    folder = Path(output.split("report: ")[1].split("\n")[0]).parent
    (table,) = folder.glob("table?.json")
    return folder, json.loads(table.read_text(encoding="utf-8"))


class Tracked:
    def __init__(self, store: Path, table: str) -> None:
        self.client = MlflowClient(default_uri(store))
        (self.id,) = [each.experiment_id for each in self.client.search_experiments() if each.name == table]

    def runs(self, query: str = "") -> list[Run]:
        """The newest first."""
        return list(self.client.search_runs([self.id], query, order_by=["start_time DESC"]))

    def named(self, name: str) -> list[Run]:
        return self.runs(f"run_name = '{name}'")
