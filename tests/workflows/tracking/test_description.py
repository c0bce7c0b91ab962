"""The text at the top of a workflow's page in MLflow."""

from pathlib import Path

from workflows.tracking.description import description


def test_a_command_stays_code_whatever_is_in_it(tmp_path: Path) -> None:
    """A code span ends at as many backticks as it begins with, of which the command has fewer in a row."""
    text = description(tmp_path, "", "python -m x --store '`a` ``b``'", ["models:/aiayn-en-de-base@newest"])
    assert "Made by ``` python -m x --store '`a` ``b``' ```, published as" in text
    assert "serve: `models:/aiayn-en-de-base@newest`." in text
