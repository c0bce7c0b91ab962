"""The experiments: each is a command, `python -m workflows.reproduce_<name>`, that writes a table.

EXPERIMENTS["table2"].table(folder).load().metrics      # imports the table's module
"""

from collections.abc import Mapping
from dataclasses import dataclass

from workflows.engine.dag import Imported


@dataclass(frozen=True)
class Experiment:
    """A module with a command `app`, and the class of its table's artifact."""

    module: str
    table: Imported


EXPERIMENTS: Mapping[str, Experiment] = {
    "table1": Experiment("workflows.reproduce_table1", Imported("workflows.tables.table1:Table1Artifact")),
    "table2": Experiment("workflows.reproduce_table2", Imported("workflows.tables.table2:Table2Artifact")),
    "table3": Experiment("workflows.reproduce_table3", Imported("workflows.tables.table3:Table3Artifact")),
    "table4": Experiment("workflows.reproduce_table4", Imported("workflows.tables.table4:Table4Artifact")),
}
"""By name, which also names the runs' folder and the MLflow experiment."""
