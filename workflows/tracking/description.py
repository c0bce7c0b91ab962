"""The text at the top of a workflow's page in MLflow: the table, the report, the command, the models."""

import re
from collections.abc import Iterable
from pathlib import Path

NOTE_TAG = "mlflow.note.content"
"""The tag that MLflow shows as a run's description."""
MAX_CHARACTERS = 7500
"""MLflow keeps 8000 characters of a tag."""
REST = "\n… the rest is in the report."


def description(folder: Path, run_address: str, command: str, models: Iterable[str]) -> str:
    """Returns Markdown about the table in `folder`, whose files are artifacts of the run at `run_address`.

    `command` makes the table again; `models` are the addresses at which MLflow serves the models.
    """
    files = sorted(file.name for file in folder.iterdir() if file.suffix in (".html", ".md", ".json"))
    links = [f"[{name}]({run_address}/artifacts/{name})" for name in files if name != "manifest.json"]
    served = [_code(model) for model in models]
    lines = [" · ".join(links), "", f"Made by {_code(command)}, published as {_code(str(folder))}."]
    if served:
        lines += ["", f"To load or serve: {', '.join(served)}."]
    table = next(iter(sorted(folder.glob("*.md"))), None)
    return shortened("\n".join([*lines, "", _result(table.read_text(encoding="utf-8")) if table else ""]).rstrip())


def shortened(text: str) -> str:
    """Cuts a text behind a line so that MLflow keeps it, and says so."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return text[: text.rindex("\n", 0, MAX_CHARACTERS - len(REST))] + REST


def _code(text: str) -> str:
    """Returns a text as a code span, between more backticks than it has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if fence == "`" else f"{fence} {text} {fence}"


def _result(markdown: str) -> str:
    """Returns a table's document up to what differs from the paper, its title as a smaller one."""
    return markdown.split("\n## What differs")[0].replace("# ", "### ", 1).strip()
