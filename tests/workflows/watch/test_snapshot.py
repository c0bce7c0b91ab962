"""What is seen of a run: states, places in the DAG, progress, curves, and where it stopped."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.store.store import LocalStore
from tests.workflows.watch.conftest import write_metrics
from workflows.watch.snapshot import MOST_POINTS, as_json, record_of, take


def test_a_running_run(store: LocalStore, running: Callable[..., Any]) -> None:
    """Each stage has its state, its inputs and its place; a training its progress, its rate and its curves."""
    with running():
        seen = take(store, record_of(store, None))
    assert (seen.run, seen.state, seen.where) == ("table2/embedded/1", "running", "")
    assert seen.told() == "2 of 6 stages done, 1 running, 3 to come"
    places = {stage.label: (stage.depth, stage.row, stage.parent) for stage in seen.stages}
    assert places == {
        "encode en-de": (0, 0, None),
        "train en-de base": (1, 0, 0),
        "average en-de base": (2, 0, 1),
        "cost en-de base": (2, 1, 1),
        "report en-de": (1, 2, 0),
        "table 2": (3, 0, 2),
    }
    train = seen.stages[1]
    assert (train.fraction, train.told) == (0.75, "30 of 40 updates")
    assert train.left_s == pytest.approx(1.0)  # ten updates at ten a second
    assert seen.stages[4].seconds == 7
    loss, perplexity = seen.curves
    assert loss.points[0] == (1, 8.0)
    assert (len(loss.points), len(perplexity.points)) == (30, 15)
    assert perplexity.points[-1] == (30, 50 / 15)


def test_a_run_that_was_killed_or_failed(store: LocalStore, running: Callable[..., Any]) -> None:
    """It says where it stopped, and why if that is known; nothing is left to do at a rate."""
    with pytest.raises(UserError), running():
        raise UserError("the loss is not finite")
    seen = take(store, record_of(store, "embedded"))
    assert (seen.state, seen.where, seen.error) == ("failed", "train en-de base", "the loss is not finite")
    assert seen.stages[1].state == "stopped"
    assert seen.stages[1].left_s is None
    with pytest.raises(KeyboardInterrupt), running():
        raise KeyboardInterrupt
    assert take(store, record_of(store, None)).state == "interrupted"


def test_long_curves_are_thinned_and_start_without_lines(store: LocalStore, running: Callable[..., Any]) -> None:
    """The last point is always there; before the first line there is no curve."""
    with running():
        write_metrics(store, 1000)
        loss = take(store, record_of(store, None)).curves[0]
        assert MOST_POINTS / 2 < len(loss.points) <= MOST_POINTS
        assert loss.points[-1][0] == 1000
        lines = '{"update": 1, "loss": NaN, "dev_perplexity": Infinity}\n{"update": 2, "loss": 3.0}\n'
        (store.scratch("training-1") / "metrics.jsonl").write_text(lines)
        (loss,) = take(store, record_of(store, None)).curves
        assert loss.points == ((2, 3.0),)  # what is no number can be neither drawn nor sent
        (store.scratch("training-1") / "metrics.jsonl").unlink()
        assert take(store, record_of(store, None)).curves == ()


def test_names_of_runs(store: LocalStore, running: Callable[..., Any]) -> None:
    """Without a run, and for a name that none has, one line says what there is."""
    with pytest.raises(UserError, match="no run is recorded"):
        record_of(store, None)
    with running():
        assert record_of(store, "table2/embedded").run == "table2/embedded/1"
        with pytest.raises(UserError, match="table2/embedded/1"):
            record_of(store, "table3")


def test_json(store: LocalStore, running: Callable[..., Any]) -> None:
    """The page gets the same, without the paths of this machine."""
    with running():
        seen = take(store, record_of(store, None))
    found = json.loads(json.dumps(as_json(seen)))
    assert found["told"] == seen.told()
    assert [stage["label"] for stage in found["stages"]] == [stage.label for stage in seen.stages]
    assert str(store.root) not in json.dumps(found)
