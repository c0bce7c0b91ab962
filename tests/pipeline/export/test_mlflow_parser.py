"""The parser that MLflow keeps with a run, saved and loaded again."""

from pathlib import Path

import pytest

from pipeline.evaluation.parser import Parser
from pipeline.export.mlflow_parser import save
from pipeline.parsing.trees import bracketed
from pipeline.settings import PARSING
from tests.support.tiny_parser import SENTENCES, make_parser, make_trees


def test_the_loaded_parser_answers_with_bracketed_trees(tmp_path: Path) -> None:
    """Its answers are those of the parser; parameters change the search, and one out of range is refused."""
    import pandas as pd
    from mlflow import pyfunc
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    checkpoint = make_parser(tmp_path / "parser", make_trees(tmp_path))
    save(tmp_path / "saved", checkpoint, Model())
    loaded = pyfunc.load_model(str(tmp_path / "saved"))
    search = {"beam_size": 2, "max_extra_tokens": 5}
    answers = loaded.predict(pd.DataFrame(SENTENCES), search)
    parser = Parser(checkpoint.folder, PARSING.model_copy(update=search))
    assert answers == [bracketed(parsed.tree) if parsed else "" for parsed in parser.parse(SENTENCES)]
    assert answers[1] == ""
    with pytest.raises(MlflowException, match="beam_size"):
        loaded.predict(pd.DataFrame(SENTENCES), {"beam_size": 0})
