"""Saves a trained model in MLflow's format, so that `mlflow models serve` answers requests with its translations.

    export MLFLOW_TRACKING_URI=sqlite:///$PWD/runs/mlflow.db
    mlflow models serve -m models:/m-... --env-manager local --port 5001
    curl http://127.0.0.1:5001/invocations -H 'Content-Type: application/json' \\
        -d '{"inputs": ["Two dogs run ."], "params": {"beam_size": 8}}'
    {"predictions": ["Zwei Hunde rennen ."]}

The saved model holds the checkpoint as it is, the code of `model/` and `pipeline/`, and the name of this module, whose
`_load_pyfunc` MLflow calls. Nothing is pickled, and the project need not be installed where the model is served.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.settings import DecodingSettings
from pipeline.store.artifacts import Checkpoint

EXAMPLE = ["Two dogs run ."]
LIBRARIES = ("numpy", "pyarrow", "pydantic", "safetensors", "sentencepiece", "torch")
"""Packages that translation needs besides MLflow."""


class Served(ABC):
    """A model object that MLflow calls; `predict` may run in several threads at once."""

    @abstractmethod
    def answers(self, lines: list[str], options: dict[str, Any]) -> list[str]:
        """Returns an answer for each line; `given` are fields of DecodingSettings, the others have their defaults.

        Raises ValidationError if one is out of range.
        """

    def predict(self, sentences: Any, params: dict[str, Any] | None = None) -> list[str]:
        """Answers each row of the data frame's first column; `params` are fields of DecodingSettings.

        Raises MlflowException, which the server answers with status 400, if a parameter is out of range or a row is
        not text.
        """
        from mlflow.exceptions import MlflowException

        lines = sentences.iloc[:, 0].tolist()
        if not all(isinstance(line, str) for line in lines):
            raise MlflowException.invalid_parameter_value("every sentence must be a string")
        try:
            return self.answers(lines, params or {})
        except ValidationError as error:
            wrong = "; ".join(f"{detail['loc'][0]}: {detail['msg']}" for detail in error.errors())
            raise MlflowException.invalid_parameter_value(wrong) from None


def device() -> str:
    """Returns the device that a served model computes on."""
    import torch  # not at the top, because a model is saved without

    return "cuda" if torch.cuda.is_available() else "cpu"


class ServedTranslator(Served):
    """A translator that MLflow serves."""

    def __init__(self, checkpoint_folder: Path) -> None:
        from pipeline.evaluation.translation import Translator

        self._translator = Translator(checkpoint_folder, DecodingSettings(), device())

    def answers(self, lines: list[str], options: dict[str, Any]) -> list[str]:
        """Translates each line."""
        return self._translator.with_settings(DecodingSettings(**options)).translate(lines)


def _load_pyfunc(data_path: str) -> ServedTranslator:
    """Loads the model; MLflow calls this function by its name."""
    return ServedTranslator(Path(data_path))


def save(folder: Path, checkpoint: Checkpoint, description: Any) -> None:
    """Writes a checkpoint as an MLflow model into a new folder; `description` is an `mlflow.models.Model`."""
    save_served(folder, checkpoint, description, __name__, DecodingSettings(), EXAMPLE, LIBRARIES)


def save_served(
    folder: Path,
    checkpoint: Checkpoint,
    description: Any,
    module: str,
    defaults: DecodingSettings,
    example: list[str],
    libraries: Sequence[str],
) -> None:
    """Writes a model that `module` loads; requests may set the beam, the length penalty and the greatest length."""
    from mlflow import pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    params = [
        ParamSpec("beam_size", "long", defaults.beam_size),
        ParamSpec("length_penalty", "double", defaults.length_penalty),
        ParamSpec("max_extra_tokens", "long", defaults.max_extra_tokens),
    ]
    lines = Schema([ColSpec("string")])
    root = Path(__file__).parents[2]
    pyfunc.save_model(
        folder,
        loader_module=module,
        data_path=str(checkpoint.folder),
        code_paths=[str(root / "model"), str(root / "pipeline")],
        mlflow_model=description,
        signature=ModelSignature(lines, lines, ParamSchema(params)),
        input_example=example,
        pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in libraries],  # PyPI has no "+cpu"
    )
