"""pipeline.attention.relations: how often a head links pronouns to their antecedents, on known attention."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from pipeline.attention.records import RelationName, RelationSettings
from pipeline.attention.relations import _Case, _evaluate, measure
from pipeline.corpora.embedded import EmbeddedSettings, generate
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint
from tests.support.tiny_checkpoint import make_checkpoint

CORPUS = EmbeddedSettings(target="de", train_pairs=60).text("train")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Random weights and a small vocabulary, so most words are several pieces."""
    folder = tmp_path_factory.mktemp("relations")
    (folder / "corpus").mkdir()
    return make_checkpoint(
        folder / "model", generate(Context(folder / "corpus"), CORPUS), byte_fallback=True, pieces=120
    )


def case(query: int, key: int, *rows: list[float]) -> _Case:
    return _Case(query, key, np.array(rows, np.float32))


def test_shares_of_known_attention() -> None:
    """The best head and offset are chosen on one half of the cases and scored on the other. Chance is 1 / words."""
    right, wrong = [0.1, 0.7, 0.1, 0.1], [0.7, 0.1, 0.1, 0.1]
    cases = [case(3, 1, wrong, right), case(4, 1, wrong, right), case(3, 1, right, right), case(3, 1, right, wrong)]
    result = _evaluate("pronoun to antecedent", cases, n_heads=1)
    assert (result.best_layer, result.best_head) == (2, 1)
    assert result.best_share == 0.5  # of the second and the fourth
    assert result.best_interval == pytest.approx((0.0945, 0.9055), abs=1e-4)  # Wilson's interval for 1 in 2, at 95%
    assert (result.offset, result.offset_share) == (-2, 0.5)
    assert result.chance == pytest.approx(0.25)
    assert [head.share for head in result.heads] == [0.5, 0.75]
    assert result.heads[0].weight == pytest.approx((0.1 + 0.1 + 0.7 + 0.7) / 4)


def test_every_relation_is_measured_on_unseen_sentences(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The stage measures every relation on unseen sentences, where random heads do about as well as chance."""
    result = measure(Context(tmp_path), checkpoint, CORPUS, RelationSettings(cases=40)).load()
    assert [one.relation for one in result.relations] == list(get_args(RelationName))
    for one in result.relations:
        assert one.cases == 40
        assert len(one.heads) == 2
        assert 0.02 < one.chance < 0.5
        assert 0 <= one.best_share <= 0.6
        low, high = one.best_interval
        assert low <= one.best_share <= high
    assert result.relations[0].offset < 0
