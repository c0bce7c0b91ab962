"""Differences from the paper: a training like the paper's has none but its time, and each aspect is named by itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from model.config import BASE
from pipeline.store.figures import Stretch, StretchDevices
from workflows.tables.differences import Difference, differences
from workflows.tables.measurements import Measured, Translation

Cell = Callable[..., Translation]


@pytest.fixture
def printed(cell: Cell) -> Measured:
    """A cell whose figures are those of the paper's EN-DE base."""
    measured = cell("en-de", "base", config=BASE).measured()
    training = {"updates": 100_000, "source_tokens": 2_500_000_000, "target_tokens": 2_500_000_000, "train_s": 43_200.0}
    scores = measured.main_scores.model_copy(update={"sentences": 3003})
    cell_of_paper = replace(
        measured,
        data="WMT 2014",
        train_pairs=4_500_000,
        test_set="newstest2014",
        scores={"newstest2014": scores},
        averaged_updates=(96_000, 97_000, 98_000, 99_000, 100_000),
        run=measured.run.model_copy(update=training),
    )
    return on(cell_of_paper)


def aspects_of(cell: Measured) -> dict[str, Difference]:
    """Returns the differences of one cell by aspect, without the training time, which always differs."""
    aspects = {difference.what: difference for difference in differences([cell])}
    assert aspects.pop("training time").cells == ("EN-DE base",)
    return aspects


def on(
    cell: Measured, name: str = "NVIDIA P100", count: int = 8, dtype: str = "float32", rate_flop_s: float = 5e10
) -> Measured:
    """Returns the cell as trained on so many devices of a name."""
    devices = (StretchDevices(name, count, rate_flop_s),)
    return changed(cell, "run", stretches=(Stretch(devices, 1, dtype, "2.13.0", False, cell.run.train_s),))


def changed(cell: Measured, part: str, **fields: Any) -> Measured:
    """Returns the cell with other figures in one of its files."""
    return replace(cell, **{part: getattr(cell, part).model_copy(update=fields)})


def test_a_training_like_the_paper_s_differs_in_its_time_alone(printed: Measured) -> None:
    """Both times are given, with the seconds of an update."""
    (time,) = differences([printed])
    assert (time.paper, time.here) == ("12 hours, 0.4 s per update", "12 h 00 min, 0.43 s per update")


@pytest.mark.parametrize(
    ("fields", "here"),
    [
        ({"train_pairs": 4_950_000}, None),
        ({"train_pairs": 4_050_000}, None),
        ({"train_pairs": 4_950_001}, "WMT 2014, 4.95 M pairs"),
        ({"train_pairs": 4_049_999}, "WMT 2014, 4.05 M pairs"),
        ({"data": "Multi30k"}, "Multi30k, 4.5 M pairs"),
        ({"data": ""}, "unnamed data, 4.5 M pairs"),
        ({"data": "part of WMT 2014"}, None),
    ],
)
def test_data_are_the_paper_s_within_a_tenth(printed: Measured, fields: dict[str, Any], here: str | None) -> None:
    """The paper rounds its number of pairs; other data differ whatever their size."""
    aspects = aspects_of(replace(printed, **fields))
    assert {what: entry.here for what, entry in aspects.items()} == ({"training data": here} if here else {})


@pytest.mark.parametrize(("size", "differs"), [(37_370, False), (36_630, False), (37_371, True), (36_629, True)])
def test_vocabulary_is_the_paper_s_within_a_hundredth(printed: Measured, size: int, differs: bool) -> None:
    """A vocabulary learned with 37 000 pieces need not have exactly as many."""
    aspects = aspects_of(replace(printed, config=replace(BASE, vocabulary_size=size)))
    assert {what: entry.here for what, entry in aspects.items()} == (
        {"vocabulary": f"{size:,} pieces"} if differs else {}
    )


def test_test_set_updates_and_hardware_are_reported(printed: Measured) -> None:
    """Any other number of sentences or updates, or any other device, differs."""
    scores = printed.main_scores
    fewer = replace(printed, scores={"newstest2014": scores.model_copy(update={"sentences": 3000})})
    assert aspects_of(fewer)["test set"].here == "newstest2014, 3,000 sentences"
    assert aspects_of(replace(printed, test_set="newstest2013", scores={"newstest2013": scores})).keys() == {"test set"}
    longer = changed(printed, "run", updates=100_001)
    assert {what: (entry.paper, entry.here) for what, entry in aspects_of(longer).items()} == {
        "updates": ("100,000", "100,001")
    }
    assert aspects_of(on(printed, count=4))["hardware"].here == "4 × NVIDIA P100, float32"
    assert aspects_of(on(printed, dtype="bfloat16"))["hardware"].here == "8 × NVIDIA P100, bfloat16"


def test_optimizer_decoding_and_model_name_what_differs(printed: Measured) -> None:
    """Only the fields that differ are listed, in the paper's symbols, on both sides."""
    settings = printed.run.settings
    optimizer = replace(settings.optimizer, beta_2=0.98, warmup_steps=400, label_smoothing=0.0)
    aspects = aspects_of(changed(printed, "run", settings=settings.model_copy(update={"optimizer": optimizer})))
    assert {what: (entry.paper, entry.here) for what, entry in aspects.items()} == {
        "optimizer": ("warmup 4000, ε_ls 0.1", "warmup 400, ε_ls 0.0")
    }
    decoding = printed.decoding.settings.model_copy(update={"beam_size": 5})
    assert aspects_of(changed(printed, "decoding", settings=decoding))["decoding"].here == "beam 5"
    assert aspects_of(replace(printed, config=replace(BASE, n_heads=4)))["model"].paper == "h 8"


def test_cells_that_differ_alike_share_an_entry(printed: Measured) -> None:
    """All of several cells are `all`; a part of them, or the only cell there is, is named."""
    wide = replace(printed, train_pairs=9_000_000)
    other = replace(wide, pair="en-fr", model="big")
    data = {entry.cells for entry in differences([wide, replace(wide, model="base")]) if entry.what == "training data"}
    assert data == {("all",)}
    assert aspects_of(wide)["training data"].cells == ("EN-DE base",)
    some = [entry.cells for entry in differences([wide, printed, other]) if entry.what == "training data"]
    assert some == [("EN-DE base",), ("EN-FR big",)]
