"""A trained model in MLflow's format, so that `mlflow models serve` serves translations or trees.

    mlflow.pyfunc.log_model(name="en-de base", **contents(checkpoint, DecodingSettings(beam_size=4)))

    export MLFLOW_TRACKING_URI=sqlite:///$PWD/runs/mlflow.db
    mlflow models serve -m models:/m-... --env-manager local --port 5001
    curl http://127.0.0.1:5001/invocations -H 'Content-Type: application/json' \\
        -d '{"inputs": ["Two dogs run ."], "params": {"beam_size": 8}}'
    {"predictions": ["Zwei Hunde rennen ."]}

A parser takes words separated by spaces and returns bracketed trees. The saved model contains the checkpoint, the code
of `model/` and `pipeline/`, and the name of this module, whose `_load_pyfunc` MLflow calls. Nothing is pickled, and the
project need not be installed on the server.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.artifacts import Checkpoint
from pipeline.errors import mistakes
from pipeline.parsing.linearisation import writes_trees
from pipeline.settings import DecodingSettings
from pipeline.text.vocabulary import load

LIBRARIES = ("numpy", "pyarrow", "pydantic", "safetensors", "sentencepiece", "torch")
"""Packages needed for translation besides MLflow."""


def is_parser(checkpoint_folder: Path) -> bool:
    """Whether a checkpoint writes trees."""
    return writes_trees(load(checkpoint_folder / "joint.model"))


class Served:
    """A translator or parser served by MLflow; `predict` is thread-safe."""

    def __init__(self, checkpoint_folder: Path) -> None:
        import torch  # not at the top, since saving a model does not need it

        from pipeline.evaluation.parser import Parser, settings_of
        from pipeline.evaluation.translation import Translator

        parses = is_parser(checkpoint_folder)
        kind, settings = (Parser, settings_of(checkpoint_folder)) if parses else (Translator, DecodingSettings())
        self._model = kind(checkpoint_folder, settings, "cuda" if torch.cuda.is_available() else "cpu")

    def predict(self, sentences: Any, params: dict[str, Any] | None = None) -> list[str]:
        """Answers each row of the data frame's first column; `params` are fields of DecodingSettings.

        Raises MlflowException, which the server returns with status 400, if a parameter is out of range or a row is not
        text.
        """
        from mlflow.exceptions import MlflowException

        lines = sentences.iloc[:, 0].tolist()
        if not all(isinstance(line, str) for line in lines):
            raise MlflowException.invalid_parameter_value("every sentence must be a string")
        try:
            settings = DecodingSettings(**{**self._model.settings.model_dump(), **(params or {})})
        except ValidationError as error:
            raise MlflowException.invalid_parameter_value(mistakes(error)) from None
        return self._model.with_settings(settings).translate(lines)


def _load_pyfunc(data_path: str) -> Served:
    """Loads the model; MLflow calls this function by name."""
    return Served(Path(data_path))


def contents(checkpoint: Checkpoint, search: DecodingSettings) -> dict[str, Any]:
    """Returns what `mlflow.pyfunc.save_model` and `log_model` take to write a checkpoint as a model.

    It searches by `search` unless a request sets beam, length penalty or maximum length.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    params = [
        ParamSpec("beam_size", "long", search.beam_size),
        ParamSpec("length_penalty", "double", search.length_penalty),
        ParamSpec("max_extra_tokens", "long", search.max_extra_tokens),
    ]
    lines = Schema([ColSpec("string")])
    root = Path(__file__).parents[2]
    return {
        "loader_module": __name__,
        "data_path": str(checkpoint.folder),
        "code_paths": [str(root / "model"), str(root / "pipeline")],
        "signature": ModelSignature(lines, lines, ParamSchema(params)),
        "input_example": ["Two dogs run ."],
        "pip_requirements": [f"{name}=={version(name).partition('+')[0]}" for name in LIBRARIES],  # PyPI has no "+cpu"
    }
