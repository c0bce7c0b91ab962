"""The experiments: each is a command, `aiayn NAME` or `python -m MODULE`.

python -m workflows.reproduce_table2 --plan     # like: aiayn table2 --plan
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Experiment:
    """A module with the function `main`, whose options are the command's; its docstring is the command's help."""

    module: str
    summary: str
    """For the list of commands, which imports no experiment."""


EXPERIMENTS: Mapping[str, Experiment] = {
    "table1": Experiment("workflows.reproduce_table1", "Table 1: what five types of layers cost."),
    "table2": Experiment("workflows.reproduce_table2", "Table 2: BLEU and training cost of base and big."),
    "table3": Experiment("workflows.reproduce_table3", "Table 3: ablations of the base model."),
    "table4": Experiment("workflows.reproduce_table4", "Table 4: constituency parsing."),
    "figures": Experiment("workflows.attention_figures", "Figures 3 to 5: the attention of a model's heads."),
}
"""By name. A table's name is also that of its runs' folder and of its MLflow experiment."""
