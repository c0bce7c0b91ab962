"""Saves a trained parser in MLflow's format, so that `mlflow models serve` answers sentences with bracketed trees.

    curl http://127.0.0.1:5001/invocations -H 'Content-Type: application/json' \\
        -d '{"inputs": ["The man hears the dog ."], "params": {"beam_size": 4}}'
    {"predictions": ["(S (NP (XX The) (XX man)) (VP (XX hears) (NP (XX the) (XX dog))) (. .))"]}

A sentence is its words with spaces between them. As with a translator (`pipeline.export.mlflow_model`), nothing is
pickled, and the project need not be installed where the model is served.
"""

from pathlib import Path
from typing import Any

from pipeline.evaluation.parser import Parser
from pipeline.export.mlflow_model import LIBRARIES, Served, device, save_served
from pipeline.parsing.trees import bracketed
from pipeline.settings import PARSING
from pipeline.store.artifacts import Checkpoint

EXAMPLE = ["The man hears the dog ."]


class ServedParser(Served):
    """A parser that MLflow serves."""

    def __init__(self, checkpoint_folder: Path) -> None:
        self._parser = Parser(checkpoint_folder, PARSING, device())

    def answers(self, lines: list[str], options: dict[str, Any]) -> list[str]:
        """Parses each line; a blank line has no tree."""
        settings = type(PARSING)(**{**PARSING.model_dump(), **options})
        return [bracketed(parse.tree) if parse else "" for parse in self._parser.with_settings(settings).parse(lines)]


def _load_pyfunc(data_path: str) -> ServedParser:
    """Loads the model; MLflow calls this function by its name."""
    return ServedParser(Path(data_path))


def save(folder: Path, checkpoint: Checkpoint, description: Any) -> None:
    """Writes a checkpoint as an MLflow model into a new folder; `description` is an `mlflow.models.Model`."""
    save_served(folder, checkpoint, description, __name__, PARSING, EXAMPLE, (*LIBRARIES, "nltk"))
