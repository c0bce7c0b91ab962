"""Differences from the paper: a run like the paper's differs only in its time, and each aspect is listed by itself."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import pytest

from model.config import BASE
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.records import Segment, SegmentDevices
from workflows.engine.dag import to_artifact
from workflows.tables.differences import Difference, differences
from workflows.tables.measurements import Translation

Cell = Callable[..., Translation]
A = TypeVar("A", bound=Artifact)


@pytest.fixture(scope="module")
def printed(cell: Cell) -> Translation:
    """A cell with the values of the paper's EN-DE base."""
    measured = replace(cell("en-de", "base", config=BASE), data="WMT 2014")
    training = {"updates": 100_000, "source_tokens": 2_500_000_000, "target_tokens": 2_500_000_000, "train_s": 43_200.0}
    measured = changed(measured, "training", **training)
    measured = changed(measured, "checkpoint", updates=(94_000, 95_500, 97_000, 98_500, 100_000))
    return on(of_pairs(scored(measured, newstest2014=3003), 4_500_000))


def aspects_of(cell: Translation) -> dict[str, Difference]:
    """Returns a cell's differences by aspect, without the training time, which always differs."""
    aspects = {difference.what: difference for difference in differences([cell])}
    assert aspects.pop("training time").cells == ("EN-DE base",)
    return aspects


def on(
    cell: Translation, name: str = "NVIDIA P100", count: int = 8, dtype: str = "float32", rate_flop_s: float = 5e10
) -> Translation:
    """Returns the cell as trained on a number of devices of a name."""
    devices = (SegmentDevices(name, count, rate_flop_s),)
    return changed(cell, "training", segments=(Segment(devices, 1, dtype, "2.13.0", False, cell.run.train_s),))


def changed(cell: Translation, part: str, **fields: Any) -> Translation:
    """Returns the cell with changed values in a copy of one of its artifacts."""
    artifact = copied(getattr(cell, part))
    artifact.write(artifact.load().model_copy(update=fields))
    return replace(cell, **{part: artifact})


def copied(artifact: A) -> A:
    """Returns a copy of an artifact, in a folder beside it."""
    names = (artifact.folder.with_name(f"{artifact.folder.name}-{i}") for i in count())
    return type(artifact)(shutil.copytree(artifact.folder, next(name for name in names if not name.exists())))


def of_pairs(cell: Translation, pairs: int) -> Translation:
    """Returns the cell as trained on this number of pairs."""
    return changed(cell, "corpus", shards=(pairs,))


def with_model(cell: Translation, **fields: Any) -> Translation:
    """Returns the cell with some of base's sizes changed."""
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


@pytest.mark.parametrize(
    ("data", "pairs", "here"),
    [
        ("WMT 2014", 4_950_000, None),
        ("WMT 2014", 4_050_000, None),
        ("WMT 2014", 4_950_001, "WMT 2014, 4.95 M pairs"),
        ("WMT 2014", 4_049_999, "WMT 2014, 4.05 M pairs"),
        ("Multi30k", 4_500_000, "Multi30k, 4.5 M pairs"),
        ("", 4_500_000, "unnamed data, 4.5 M pairs"),
        ("part of WMT 2014", 4_500_000, None),
    ],
)
def test_data_are_the_paper_s_within_a_tenth(printed: Translation, data: str, pairs: int, here: str | None) -> None:
    """The paper's number of pairs is rounded. Other data differ whatever their size."""
    aspects = aspects_of(of_pairs(replace(printed, data=data), pairs))
    assert {what: entry.here for what, entry in aspects.items()} == ({"training data": here} if here else {})


@pytest.mark.parametrize(("size", "differs"), [(37_370, False), (36_630, False), (37_371, True), (36_629, True)])
def test_vocabulary_is_the_paper_s_within_a_hundredth(printed: Translation, size: int, differs: bool) -> None:
    """A vocabulary learned with 37,000 pieces need not have exactly this number."""
    aspects = aspects_of(with_model(printed, vocabulary_size=size))
    assert {what: entry.here for what, entry in aspects.items()} == (
        {"vocabulary": f"{size:,} pieces"} if differs else {}
    )


def test_test_set_updates_and_hardware_are_reported(printed: Translation) -> None:
    assert aspects_of(scored(printed, newstest2014=3000))["test set"].here == "newstest2014, 3,000 sentences"
    assert aspects_of(scored(printed, newstest2013=3003)).keys() == {"test set"}
    longer = changed(printed, "training", updates=100_001)
    assert {what: (entry.paper, entry.here) for what, entry in aspects_of(longer).items()} == {
        "updates": ("100,000", "100,001")
    }
    assert aspects_of(on(printed, "Tesla P100-SXM2-16GB")) == {}
    assert aspects_of(on(printed, count=4))["hardware"].here == "4 × NVIDIA P100, float32"
    assert aspects_of(on(printed, dtype="bfloat16"))["hardware"].here == "8 × NVIDIA P100, bfloat16"


def test_averaging_differs_in_number_or_interval(printed: Translation) -> None:
    """The last interval of base's five checkpoints is 1,000 updates, since 1,500 does not divide 100,000."""
    for updates, here in (
        (TrainingSettings().kept_updates, "last 5 (updates 94,500, …, 99,000, 100,000)"),
        ((95_500, 97_000, 98_500, 100_000), "last 4 (updates 95,500, …, 98,500, 100,000)"),
        ((97_000, 98_500, 100_000), "last 3 (updates 97,000, 98,500, 100,000)"),
        ((100_000,), "none"),
    ):
        aspects = aspects_of(changed(printed, "checkpoint", updates=updates))
        assert {what: entry.here for what, entry in aspects.items()} == {"averaged checkpoints": here}


def test_optimizer_decoding_and_model_name_what_differs(printed: Translation) -> None:
    optimizer = replace(printed.settings.optimizer, beta_2=0.98, warmup_steps=400, label_smoothing=0.0)
    settings = printed.settings.model_copy(update={"optimizer": optimizer})
    aspects = aspects_of(replace(printed, recipe=printed.recipe.model_copy(update={"training": settings})))
    assert {what: (entry.paper, entry.here) for what, entry in aspects.items()} == {
        "optimizer": ("warmup 4000, ε_ls 0.1", "warmup 400, ε_ls 0.0")
    }
    decoding = printed.decoding.settings.model_copy(update={"beam_size": 5})
    assert aspects_of(changed(printed, "hypotheses", settings=decoding))["decoding"].here == "beam 5"
    assert aspects_of(with_model(printed, n_heads=4))["model"].paper == "h 8"


def test_cells_that_differ_alike_share_an_entry(printed: Translation) -> None:
    wide = of_pairs(printed, 9_000_000)
    other = replace(wide, pair="en-fr", model="big")
    data = {entry.cells for entry in differences([wide, replace(wide, model="base")]) if entry.what == "training data"}
    assert data == {("all",)}
    assert aspects_of(wide)["training data"].cells == ("EN-DE base",)
    some = [entry.cells for entry in differences([wide, printed, other]) if entry.what == "training data"]
    assert some == [("EN-DE base",), ("EN-FR big",)]
