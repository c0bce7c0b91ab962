"""The model that MLflow logs with a run, loaded in this process and in another."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.artifacts import Checkpoint
from pipeline.evaluation.parser import Parser
from pipeline.evaluation.translation import Translator
from pipeline.export.mlflow_model import contents
from pipeline.parsing.trees import bracketed
from pipeline.settings import PARSING, DecodingSettings
from tests.support import tiny_parser
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint
from tests.support.tiny_parser import choose, make_parser, make_trees


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("served")
    return make_checkpoint(folder / "checkpoint")


@pytest.fixture(scope="module")
def saved(checkpoint: Checkpoint) -> Path:
    from mlflow import pyfunc

    folder = checkpoint.folder.with_name("saved")
    pyfunc.save_model(folder, **contents(checkpoint, DecodingSettings()))
    return folder


def translate(checkpoint: Checkpoint, lines: list[str], **settings: Any) -> list[str]:
    return Translator(checkpoint.folder, DecodingSettings(**settings)).translate(lines)


def test_loaded_model_translates_as_the_translator(checkpoint: Checkpoint, saved: Path) -> None:
    """It accepts lists, data frames, blank lines and parameters. Invalid ones are one-line errors."""
    import pandas
    from mlflow import pyfunc
    from mlflow.exceptions import MlflowException

    path = sys.path.copy()
    try:
        loaded = pyfunc.load_model(str(saved))
        assert loaded.predict(SENTENCES) == translate(checkpoint, SENTENCES)
        frame = pandas.DataFrame({"sentence": SENTENCES})
        params = {"beam_size": 1, "length_penalty": 1.0, "max_extra_tokens": 3}
        assert loaded.predict(frame, params=params) == translate(checkpoint, SENTENCES, **params)
        assert loaded.predict(loaded.input_example) == translate(checkpoint, loaded.input_example)
        with pytest.raises(MlflowException, match="beam_size: Input should be greater") as refused:
            loaded.predict(["A dog ."], params={"beam_size": 0})
        assert refused.value.get_http_status_code() == 400
        with pytest.raises(MlflowException, match="must be a string"):
            loaded.predict(pandas.DataFrame({"sentence": ["A dog .", None]}))
    finally:
        sys.path[:] = path  # MLflow added the model's code to it


ALONE = """
import importlib.metadata, json, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("ray", "obstore", "sacrebleu", "sacremoses", "langcodes", "typer", "workflows", "tests"):
            raise ModuleNotFoundError(f"{name!r} is not among the model's requirements", name=name)

folders, asked = sys.argv[1:3], json.loads(sys.argv[3])
for line in open(f"{folders[0]}/requirements.txt").read().split():
    importlib.metadata.version(line.partition("=")[0].partition("[")[0].partition(">")[0])
sys.meta_path.insert(0, Hidden())
from mlflow import pyfunc
answers = [pyfunc.load_model(folder).predict(lines) for folder, lines in zip(folders, asked)]
print(json.dumps([answers, sys.modules["pipeline.evaluation.translation"].__file__]))
"""
"""Hides the libraries of the project that the model's requirements do not bring."""


@pytest.mark.spawns
def test_the_models_need_no_more_than_their_requirements(checkpoint: Checkpoint, saved: Path, tmp_path: Path) -> None:
    """Copies elsewhere answer in a separate process, with only their folder's code."""
    from mlflow import pyfunc

    parser = make_parser(tmp_path / "made", make_trees(tmp_path))
    search = PARSING.model_copy(update={"beam_size": 2, "well_formed": True})
    choose(parser, search)
    pyfunc.save_model(tmp_path / "parser", **contents(parser, search))
    shutil.copytree(saved, tmp_path / "translator")
    assert len({(tmp_path / kind / "requirements.txt").read_text() for kind in ("parser", "translator")}) == 1
    lines = ["Two dogs run .", "", "A dog ."]
    parsed = Parser(parser.folder, search).parse(tiny_parser.SENTENCES)
    wanted = [translate(checkpoint, lines), [bracketed(each.tree) if each else "" for each in parsed]]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    folders = [str(tmp_path / kind) for kind in ("translator", "parser")]
    command = [sys.executable, "-P", "-c", ALONE, *folders, json.dumps([lines, tiny_parser.SENTENCES])]
    answered = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert answered.returncode == 0, answered.stderr[-2000:]
    answers, module = json.loads(answered.stdout)
    assert answers == wanted
    assert Path(module).is_relative_to(tmp_path / "translator")
