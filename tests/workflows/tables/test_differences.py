import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from model.config import BASE
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.records import Segment, SegmentDevices
from workflows.engine.dag import to_artifact
from workflows.tables.differences import differences
from workflows.tables.measurements import Translation

Cell = Callable[..., Translation]


@pytest.fixture(scope="module")
def printed(cell: Cell) -> Translation:
    measured = replace(cell("en-de", "base", config=BASE), data="WMT 2014")
    training = {"updates": 100_000, "source_tokens": 2_500_000_000, "target_tokens": 2_500_000_000, "train_s": 43_200.0}
    measured = changed(measured, "training", **training)
    measured = changed(measured, "checkpoint", updates=(94_000, 95_500, 97_000, 98_500, 100_000))
    return on(of_pairs(scored(measured, newstest2014=3003), 4_500_000))


def aspects_of(cell: Translation) -> dict[str, tuple[str, str]]:
    """The paper's value and ours by aspect, without the training time, which always differs."""
    aspects = {difference.what: (difference.paper, difference.here) for difference in differences([cell])}
    del aspects["training time"]
    return aspects


def on(cell: Translation, name: str = "NVIDIA P100", count: int = 8, dtype: str = "float32") -> Translation:
    devices = (SegmentDevices(name, count, 5e10),)
    return changed(cell, "training", segments=(Segment(devices, 1, dtype, "2.13.0", False, cell.run.train_s),))


def changed(cell: Translation, part: str, **fields: Any) -> Translation:
    artifact = copied(getattr(cell, part))
    artifact.write(artifact.load().model_copy(update=fields))
    return replace(cell, **{part: artifact})


def copied(artifact: Artifact) -> Any:
    folder = mkdtemp(dir=artifact.folder.parent)
    return type(artifact)(Path(shutil.copytree(artifact.folder, folder, dirs_exist_ok=True)))


def of_pairs(cell: Translation, pairs: int) -> Translation:
    return changed(cell, "corpus", shards=(pairs,))


def with_model(cell: Translation, **fields: Any) -> Translation:
    checkpoint = copied(to_artifact(cell.checkpoint))
    checkpoint.write_json("model.json", replace(BASE, **fields).__dict__)
    return replace(cell, checkpoint=checkpoint)


def scored(cell: Translation, **sentences: int) -> Translation:
    """Returns the cell with the same scores on other test sets of these sizes; the first is its own."""
    sets = [changed(cell, "scores", name=name, sentences=n).scores for name, n in sentences.items()]
    name, n_sentences = next(iter(sentences.items()))
    main = changed(cell, "evaluation_set", name=name, sentences=n_sentences)
    return replace(main, scores=sets[0], other_scores=tuple(sets[1:]))


def test_a_training_like_the_paper_s_differs_in_its_time_alone(printed: Translation) -> None:
    (time,) = differences([printed])
    assert (time.paper, time.here) == ("12 hours, 0.4 s per update", "12 h 00 min, 0.43 s per update")


def optimized(cell: Translation, **fields: Any) -> Translation:
    settings = cell.settings.model_copy(update={"optimizer": replace(cell.settings.optimizer, **fields)})
    return replace(cell, recipe=cell.recipe.model_copy(update={"training": settings}))


def searched(cell: Translation, **fields: Any) -> Translation:
    return changed(cell, "hypotheses", settings=cell.decoding.settings.model_copy(update=fields))


Change = Callable[[Translation], Translation]
KEPT = TrainingSettings().kept_updates
CASES: list[tuple[Change, dict[str, str]]] = [
    # The paper's number of pairs is rounded, and a vocabulary need not have exactly 37,000 pieces.
    (lambda cell: of_pairs(cell, 4_950_000), {}),
    (lambda cell: of_pairs(cell, 4_050_000), {}),
    (lambda cell: of_pairs(cell, 4_950_001), {"training data": "WMT 2014, 4.95 M pairs"}),
    (lambda cell: of_pairs(cell, 4_049_999), {"training data": "WMT 2014, 4.05 M pairs"}),
    (lambda cell: replace(cell, data="Multi30k"), {"training data": "Multi30k, 4.5 M pairs"}),
    (lambda cell: replace(cell, data=""), {"training data": "unnamed data, 4.5 M pairs"}),
    (lambda cell: replace(cell, data="part of WMT 2014"), {}),
    (lambda cell: with_model(cell, vocabulary_size=37_370), {}),
    (lambda cell: with_model(cell, vocabulary_size=36_630), {}),
    (lambda cell: with_model(cell, vocabulary_size=37_371), {"vocabulary": "37,371 pieces"}),
    (lambda cell: with_model(cell, vocabulary_size=36_629), {"vocabulary": "36,629 pieces"}),
    (lambda cell: with_model(cell, n_heads=4), {"model": "h 4"}),
    (lambda cell: scored(cell, newstest2014=3000), {"test set": "newstest2014, 3,000 sentences"}),
    (lambda cell: scored(cell, newstest2013=3003), {"test set": "newstest2013, 3,003 sentences"}),
    (lambda cell: changed(cell, "training", updates=100_001), {"updates": "100,001"}),
    (lambda cell: on(cell, "Tesla P100-SXM2-16GB"), {}),
    (lambda cell: on(cell, count=4), {"hardware": "4 × NVIDIA P100, float32"}),
    (lambda cell: on(cell, dtype="bfloat16"), {"hardware": "8 × NVIDIA P100, bfloat16"}),
    (
        lambda cell: optimized(cell, beta_2=0.98, warmup_steps=400, label_smoothing=0.0),
        {"optimizer": "warmup 400, ε_ls 0.0"},
    ),
    (lambda cell: searched(cell, beam_size=5), {"decoding": "beam 5"}),
    # The last interval of base's five checkpoints is 1,000 updates, since 1,500 does not divide 100,000.
    *(
        (lambda cell, kept=kept: changed(cell, "checkpoint", updates=kept), {"averaged checkpoints": here})
        for kept, here in (
            (KEPT, "last 5 (updates 94,500, …, 99,000, 100,000)"),
            ((95_500, 97_000, 98_500, 100_000), "last 4 (updates 95,500, …, 98,500, 100,000)"),
            ((97_000, 98_500, 100_000), "last 3 (updates 97,000, 98,500, 100,000)"),
            ((100_000,), "none"),
        )
    ),
]


@pytest.mark.parametrize(("change", "expected"), CASES, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_what_differs_is_named_and_nothing_else(printed: Translation, change: Change, expected: dict[str, str]) -> None:
    assert {what: here for what, (_, here) in aspects_of(change(printed)).items()} == expected


def test_the_paper_s_values_stand_beside(printed: Translation) -> None:
    assert aspects_of(with_model(printed, n_heads=4))["model"][0] == "h 8"
    assert aspects_of(optimized(printed, warmup_steps=400))["optimizer"][0] == "warmup 4000"


def test_cells_that_differ_alike_share_an_entry(printed: Translation) -> None:
    wide = of_pairs(printed, 9_000_000)
    other = replace(wide, pair="en-fr", model="big")
    data = {entry.cells for entry in differences([wide, replace(wide, model="base")]) if entry.what == "training data"}
    assert data == {("all",)}
    (own,) = [entry.cells for entry in differences([wide]) if entry.what == "training data"]
    assert own == ("EN-DE base",)
    some = [entry.cells for entry in differences([wide, printed, other]) if entry.what == "training data"]
    assert some == [("EN-DE base",), ("EN-FR big",)]
