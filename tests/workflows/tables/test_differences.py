from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from model.config import BASE
from pipeline.records import Segment, SegmentDevices
from pipeline.settings import TrainingSettings
from workflows.tables.differences import differences
from workflows.tables.facts import INITIALISATION
from workflows.tables.measured import Measured
from workflows.tables.provenance import provenance_notes

Cell = Callable[..., Measured]
TOGETHER = Segment((SegmentDevices("NVIDIA H100", 8, 6e14),), 1, "bfloat16", "2.13.0", True, 80.0)
ALONE = replace(TOGETHER, devices=(SegmentDevices("NVIDIA H100", 1, 6.2e14),), train_s=20.0)
CAPTURED = replace(TOGETHER, packed=True, captured=True)
TRAINED = "Trained in bfloat16 on {} × NVIDIA H100, with torch 2.13.0, compiled layers{}; decoded in float32."
LEFT_OUT = "2 dev pairs longer than 1024 tokens are excluded from dev loss and perplexity."


@pytest.fixture(scope="module")
def printed(cell: Cell) -> Measured:
    measured = in_cell(cell("en-de", "base", config=BASE), data="WMT 2014")
    measured = trained_with(measured, mixes_lengths=False)
    training = {"updates": 100_000, "source_tokens": 2_500_000_000, "target_tokens": 2_500_000_000, "train_s": 43_200.0}
    measured = replace(measured, averaged_updates=(94_000, 95_500, 97_000, 98_500, 100_000))
    return on(of_pairs(with_test_set(changed(measured, "run", **training), "newstest2014", 3003), 4_500_000))


ALWAYS = {
    "tokenisation": "BPE by sentencepiece on raw text, 256 pieces for bytes",
    "cleaning": "0 pairs dropped: not UTF-8, blank, over 250 words, over 9 times the other side",
    "longest training sentence": "256 tokens",
    "initialisation": INITIALISATION,
    "form of label smoothing": "ε_ls / V on every piece, as cited",
    "training time": "12 h 00 min, 0.43 s per update",
}


def aspects_of(model: Measured, without: Mapping[str, str] = ALWAYS) -> dict[str, tuple[str, str]]:
    """The paper's value and ours by aspect, without what is as in a training like the paper's."""
    aspects = {difference.what: (difference.paper, difference.here) for difference in differences([model])}
    return {what: texts for what, texts in aspects.items() if without.get(what) != texts[1]}


def in_cell(measured: Measured, **fields: Any) -> Measured:
    return replace(measured, cell=replace(measured.cell, **fields))


def changed(model: Measured, record: str, **fields: Any) -> Measured:
    return replace(model, **{record: getattr(model, record).model_copy(update=fields)})


def on(model: Measured, name: str = "NVIDIA P100", count: int = 8, dtype: str = "float32") -> Measured:
    devices = (SegmentDevices(name, count, 5e10),)
    return changed(model, "run", segments=(Segment(devices, 1, dtype, "2.13.0", False, model.run.train_s),))


def of_pairs(model: Measured, pairs: int) -> Measured:
    return changed(model, "corpus", shards=(pairs,))


def with_model(model: Measured, **fields: Any) -> Measured:
    return replace(model, config=replace(BASE, **fields))


def with_test_set(model: Measured, name: str, sentences: int) -> Measured:
    return changed(model, "test_set", name=name, sentences=sentences)


def trained_with(model: Measured, **settings: Any) -> Measured:
    return changed(model, "run", settings=model.run.settings.model_copy(update=settings))


def optimized(model: Measured, **fields: Any) -> Measured:
    return trained_with(model, optimizer=replace(model.run.settings.optimizer, **fields))


def prepared(model: Measured, dropped: int = 0, **fields: Any) -> Measured:
    settings = (each.model_copy(update=fields) for each in model.cell.text_settings)
    return changed(in_cell(model, text_settings=tuple(settings)), "corpus", report={"dropped": {"words": dropped}})


def searched(model: Measured, **fields: Any) -> Measured:
    return changed(model, "decoding", settings=model.decoding.settings.model_copy(update=fields))


def test_a_training_like_the_paper_s_differs_in_its_time_and_what_is_not_stated(printed: Measured) -> None:
    aspects = aspects_of(printed, {})
    assert {what: here for what, (_, here) in aspects.items()} == ALWAYS
    assert aspects["training time"][0] == "12 hours, 0.4 s per update"
    assert aspects["longest training sentence"][0] == "not stated; authors' code: 256 tokens"


Change = Callable[[Measured], Measured]
KEPT = TrainingSettings().kept_updates
CASES: list[tuple[Change, dict[str, str]]] = [
    # The paper's number of pairs is rounded, and a vocabulary need not have exactly 37,000 pieces.
    (lambda model: of_pairs(model, 4_950_000), {}),
    (lambda model: of_pairs(model, 4_050_000), {}),
    (lambda model: of_pairs(model, 4_950_001), {"training data": "WMT 2014, 4.95 M pairs"}),
    (lambda model: of_pairs(model, 4_049_999), {"training data": "WMT 2014, 4.05 M pairs"}),
    (lambda model: in_cell(model, data="Multi30k"), {"training data": "Multi30k, 4.5 M pairs"}),
    (lambda model: in_cell(model, data=""), {"training data": "unnamed data, 4.5 M pairs"}),
    (lambda model: in_cell(model, data="part of WMT 2014"), {}),
    (lambda model: with_model(model, vocabulary_size=37_370), {}),
    (lambda model: with_model(model, vocabulary_size=36_630), {}),
    (lambda model: with_model(model, vocabulary_size=37_371), {"vocabulary": "37,371 joint byte-pair pieces"}),
    (lambda model: with_model(model, vocabulary_size=36_629), {"vocabulary": "36,629 joint byte-pair pieces"}),
    (lambda model: with_model(model, n_heads=4), {"model": "h 4"}),
    (lambda model: with_test_set(model, "newstest2014", 3000), {"test set": "newstest2014, 3,000 sentences"}),
    (lambda model: with_test_set(model, "newstest2013", 3003), {"test set": "newstest2013, 3,003 sentences"}),
    (lambda model: changed(model, "run", updates=100_001), {"updates": "100,001"}),
    (lambda model: on(model, "Tesla P100-SXM2-16GB"), {}),
    (lambda model: on(model, count=4), {"hardware": "4 × NVIDIA P100, float32"}),
    (lambda model: on(model, dtype="bfloat16"), {"hardware": "8 × NVIDIA P100, bfloat16"}),
    (
        lambda model: optimized(model, beta_2=0.98, warmup_steps=400, label_smoothing=0.12343210),
        {"optimizer": "warmup 400, ε_ls 0.1234"},
    ),
    (lambda model: trained_with(model, mixes_lengths=True), {"lengths in an update": "all mixed"}),
    (
        lambda model: prepared(model, 1200, max_words=90, drop=("copy",), byte_fallback=False, max_tokens=512),
        {
            "tokenisation": "BPE by sentencepiece on raw text, no pieces for bytes",
            "cleaning": "1,200 pairs dropped: not UTF-8, blank, over 90 words, over 9 times the other side, copy",
            "longest training sentence": "512 tokens",
        },
    ),
    (lambda model: searched(model, beam_size=5), {"decoding": "beam 5"}),
    # The last interval of base's five checkpoints is 1,000 updates, since 1,500 does not divide 100,000.
    *(
        (lambda model, kept=kept: replace(model, averaged_updates=kept), {"averaged checkpoints": here})
        for kept, here in (
            (KEPT, "last 5 (updates 94,500, …, 99,000, 100,000)"),
            ((95_500, 97_000, 98_500, 100_000), "last 4 (updates 95,500, …, 98,500, 100,000)"),
            ((97_000, 98_500, 100_000), "last 3 (updates 97,000, 98,500, 100,000)"),
            ((100_000,), "none"),
        )
    ),
]


@pytest.mark.parametrize(("change", "expected"), CASES, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_what_differs_is_named_and_nothing_else(printed: Measured, change: Change, expected: dict[str, str]) -> None:
    assert {what: here for what, (_, here) in aspects_of(change(printed)).items()} == expected


def test_the_paper_s_values_stand_beside(printed: Measured) -> None:
    assert aspects_of(with_model(printed, n_heads=4))["model"][0] == "h 8"
    assert aspects_of(optimized(printed, warmup_steps=400))["optimizer"][0] == "warmup 4000"


def test_cells_that_differ_alike_share_an_entry(printed: Measured) -> None:
    wide = of_pairs(printed, 9_000_000)
    other = in_cell(wide, pair="en-fr", model="big")
    data = {entry.cells for entry in differences([wide, in_cell(wide, model="base")]) if entry.what == "training data"}
    assert data == {("all",)}
    (own,) = [entry.cells for entry in differences([wide]) if entry.what == "training data"]
    assert own == ("EN-DE base",)
    some = [entry.cells for entry in differences([wide, printed, other]) if entry.what == "training data"]
    assert some == [("EN-DE base",), ("EN-FR big",)]


@pytest.mark.parametrize(
    ("fields", "notes"),
    [
        ({"segments": (TOGETHER, ALONE)}, [TRAINED.format("1 to 8", "")]),
        ({"segments": (CAPTURED,)}, [TRAINED.format("8", ", packed batches, a CUDA graph")]),
        ({"segments": (TOGETHER,), "dev_left_out": 2}, [TRAINED.format("8", ""), LEFT_OUT]),
    ],
)
def test_devices_and_what_was_left_out(cell: Cell, fields: dict[str, Any], notes: list[str]) -> None:
    inputs = cell("en-de", "base")
    assert provenance_notes([replace(inputs, run=inputs.run.model_copy(update=fields))]) == notes
