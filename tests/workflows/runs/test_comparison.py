"""workflows.runs.comparison: settings that differ are told once, figures stand side by side, runs are found by name."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.store.store import LocalStore
from tests.support.tiny_runs import make_run
from workflows.runs.comparison import Pair, chosen, compare
from workflows.runs.record import Run, read_records, runs_of


def _models(**changes: Any) -> dict[str, dict[str, Any]]:
    base = {"beam": 4, "seed": 1, "layers": 2}
    return {"en-de base": {**base, **changes}, "en-de big": {**base, "layers": 3, **changes}}


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Three runs: the second with another beam and one model less, the third with another depth of one model."""
    store = LocalStore(tmp_path)
    make_run(store, "1", models=_models(), of_model={"sacrebleu.test": 80.0, "train_s": 100.0})
    fewer = {"en-de base": _models(beam=8)["en-de base"]}
    make_run(store, "2", models=fewer, of_model={"sacrebleu.test": 82.5}, figures={"paper BLEU EN-DE base": 84.0})
    make_run(store, "3", models={**_models(), "en-de big": {"beam": 4, "seed": 1, "layers": 6}}, workflow="table3")
    return runs_of(read_records(store))


def test_each_difference_is_told_once(runs: list[Run]) -> None:
    """What differs alike for all models that both have is of no model; what one run has alone is beside nothing."""
    third, second, first = runs
    compared = compare(first.measured, second.measured)
    assert compared.settings == (Pair("", "beam", 4, 8),)
    assert compared.models == (Pair("en-de big", "model", True, None),)
    assert compared.origins == ()
    assert compared.figures == (
        Pair("", "paper BLEU EN-DE base", 83.1, 84.0),
        Pair("en-de base", "sacrebleu.test", 80.0, 82.5),
        Pair("en-de base", "train_s", 100.0, None),
    )
    assert compare(first.measured, third.measured).settings == (Pair("en-de big", "layers", 3, 6),)
    assert compare(first.measured, first.measured).settings == ()


def test_a_setting_that_one_run_lacks_and_options_as_given(tmp_path: Path) -> None:
    """A new setting is beside nothing; `overrides` only repeats others; another text and library are told apart."""
    store = LocalStore(tmp_path)
    make_run(store, "1", settings={"overrides": "--set a=1"})
    make_run(store, "2", settings={"overrides": "--set a=2", "dropout": 0.1}, data="Multi30k")
    second, first = runs_of(read_records(store))
    compared = compare(first.measured, second.measured)
    assert compared.settings == (Pair("", "dropout", None, 0.1),)
    assert compared.origins == (Pair("", "text", "generated text", "Multi30k"),)


def test_runs_without_a_common_model_are_compared_by_what_all_share(tmp_path: Path) -> None:
    """The settings of the whole run; the models are listed."""
    store = LocalStore(tmp_path)
    make_run(store, "1", models={"a": {"beam": 4, "seed": 1}})
    make_run(store, "2", models={"b": {"beam": 5, "seed": 1}})
    second, first = runs_of(read_records(store))
    compared = compare(first.measured, second.measured)
    assert compared.settings == (Pair("", "beam", 4, 5),)
    assert [pair.model for pair in compared.models] == ["a", "b"]


def test_which_runs_are_compared(runs: list[Run]) -> None:
    """Without names the last two, the older one first; a name may lack its beginning, and stands for the newest."""
    third, second, first = runs
    assert chosen(runs, None, None) == (second, third)
    assert chosen(runs, "table2/embedded/1", None) == (first, third)
    assert chosen(runs, "table3/embedded", "embedded/1") == (third, third)
    assert chosen(runs, "table2/embedded/newest", "table2/embedded/1/") == (second, first)


def test_too_few_or_unknown_runs_are_one_line(runs: list[Run]) -> None:
    """The line lists what there is."""
    with pytest.raises(UserError, match="there is 1 run here; comparing takes two"):
        chosen(runs[:1], None, None)
    with pytest.raises(UserError, match="there is no run table2/embedded/9 here; there are table3/embedded/1, "):
        chosen(runs, "table2/embedded/9", None)
