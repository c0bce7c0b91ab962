"""The stages that name their function: it exists, and returns what the stage says that it makes."""

from pkgutil import resolve_name
from typing import get_type_hints

import pytest

from workflows import reproduce_table1, reproduce_table2, reproduce_table3, reproduce_table4, stages
from workflows.engine.dag import Imported, Stage

MODULES = (stages, reproduce_table1, reproduce_table2, reproduce_table3, reproduce_table4)
NAMED = {
    stage.name: stage
    for module in MODULES
    for stage in vars(module).values()
    if isinstance(stage, Stage) and isinstance(stage.function, Imported)
}


@pytest.mark.parametrize("name", NAMED)
def test_the_named_function_returns_the_stages_artifact(name: str) -> None:
    """What mypy checks of a function that is passed as such, is checked here of one that is named."""
    stage = NAMED[name]
    assert isinstance(stage.function, Imported)
    assert get_type_hints(resolve_name(stage.function.name))["return"] is stage.makes


def test_a_named_function_is_called_with_its_arguments() -> None:
    """The function is looked up when it is called, and a wrong name is reported then."""
    assert {"training.train", "decoding.decode", "tabulating.tabulate"} <= NAMED.keys()
    assert Imported("math:hypot")(3, 4) == 5
    with pytest.raises(AttributeError, match="no_such"):
        Imported("math:no_such")(1)
