"""The experiments' tables, as steps, without running anything."""

from typing import Any

from pipeline.store.store import Store
from workflows import reproduce_table2, reproduce_table3, reproduce_table4
from workflows.command_line import CommandLine
from workflows.engine.dag import Step
from workflows.experiment import Request
from workflows.profiles.loading import load_profile
from workflows.profiles.parsing import load_parsing_profile


def drawn(workflow: str, profile: str, store: Store) -> Step[Any]:
    trees = load_parsing_profile() if workflow == "table4" else None
    text = load_profile(profile)
    command = CommandLine(typed=f"python -m workflows.reproduce_{workflow}")
    request = Request(trees or text, store, command)
    pair, cells = next(iter(text.corpora)), ([*text.corpora], text.default_models)
    match workflow:
        case "table2":
            return reproduce_table2.reproduction(text, *cells, request).tabulate({})
        case "table3":
            grid = text.for_pair(pair).for_grid()
            return reproduce_table3.reproduction(grid, pair, None, 1, request).tabulate({})
    assert trees
    return reproduce_table4.reproduction(trees, request).tabulate({})
