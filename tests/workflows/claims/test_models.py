"""Each claim about trained models gets another verdict when its figures turn, and none where they are missing."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import pytest

from pipeline.attention.figures import HeadFigures, HeadShare, RelationFigures
from pipeline.evaluation.search_choice import DecodingChoiceFigures, SearchScores
from pipeline.settings import DecodingSettings
from workflows.claims import models, sentences
from workflows.claims.judged import Judged
from workflows.tables import table3
from workflows.tables.differences import Difference
from workflows.tables.orderings import Noise
from workflows.tables.table import Results, Row, Table
from workflows.tables.table3 import RowTrainings
from workflows.tables.table4 import SEARCHES

BETTER = MappingProxyType(
    {("base", "en-de"): (26.37, 9.5e18), ("big", "en-de"): (28.37, 1e20), ("big", "en-fr"): (40.57, 2.9e19)}
)
"""BLEU and cost, each just enough for the claims of §6.1: ConvS2S's ensemble has 26.36, MoE 40.56 and 1.2e20."""


def table2(cells: dict[tuple[str, str], tuple[float, float | None]], differs: str = "hardware") -> Results:
    """A table with these measured cells."""
    rows = [
        Row(
            f"Transformer ({model})",
            "measured",
            {
                key: value
                for (of, pair), (bleu, flop) in cells.items()
                for key, value in ((f"{pair}.paper_bleu", bleu), (f"{pair}.paper_way_flop", flop or "not measured"))
                if of == model
            },
        )
        for model in ("base", "big")
    ]
    return Results([Table("Table 2", [], rows)], [Difference(differs, "the paper's", "others", ("all",))], [], {})


@pytest.mark.parametrize(
    ("key", "cell", "worse"),
    [
        ("record en-de", ("big", "en-de"), (28.35, 1e20)),
        ("base", ("base", "en-de"), (26.35, 9.5e18)),
        ("base cost", ("base", "en-de"), (26.37, 9.7e18)),
        ("record en-fr", ("big", "en-fr"), (40.55, 2.9e19)),
        ("cost en-fr", ("big", "en-fr"), (40.57, 3.1e19)),
    ],
)
def test_comparisons_with_models_before(key: str, cell: tuple[str, str], worse: tuple[float, float]) -> None:
    """A hair less is enough for another verdict; other text is never compared; the paper's own figures bear it out."""
    assert models.of_table2(table2({**BETTER}))[key].verdict == "holds"
    assert models.of_table2(table2({**BETTER, cell: worse}))[key].verdict == "fails"
    assert models.of_table2(table2({**BETTER}, differs="training data"))[key].verdict == "not measurable here"
    assert models.of_table2(None, is_of_other_text=True)[key].verdict == "not measurable here"
    nothing = models.of_table2(None)[key]
    assert nothing.verdict == "not run"
    assert nothing.paper.startswith("yes")


def test_bleu_is_judged_where_there_is_no_cost() -> None:
    """Claims about cost are not measurable on a CPU, and those about BLEU are judged as anywhere."""
    judged = models.of_table2(table2({cell: (bleu, None) for cell, (bleu, _) in BETTER.items()}))
    costs = {key: judged.pop(key) for key in ("base cost", "cost en-fr")}
    assert {each.verdict for each in judged.values()} == {"holds"}
    assert {each.verdict for each in costs.values()} == {"not measurable here"}
    assert all(each.paper.startswith("yes") for each in costs.values())


def test_the_papers_own_arithmetic() -> None:
    """Worked by hand from Table 2."""
    assert {key: judged.paper for key, judged in models.of_table2(None).items()} == {
        "record en-de": "yes: 28.4 − 26.36 = +2.04",
        "base": "yes: 27.3 − 26.36 = +0.94",
        "base cost": "yes: 3.3e18 / 9.6e18 = 0.34",
        "record en-fr": "yes: 41.8 − 40.56 = +1.24",
        "cost en-fr": "yes: 2.3e19 / 1.2e20 = 0.19",
    }


def averaging(gains: list[float], best_gains: list[float]) -> dict[str, Judged]:
    """Trainings whose last checkpoints have 30 BLEU, their averages so much more, and a beam of 8 still more."""
    trainings = []
    for gain, best in zip(gains, best_gains, strict=True):
        scores = tuple(
            SearchScores(beam_size=beam, length_penalty=0.6, dev_paper_bleu=bleu, dev_sacrebleu=bleu)
            for beam, bleu in ((4, 30 + gain), (8, 30 + gain + best))
        )
        trainings.append((30.0, DecodingChoiceFigures(scores=scores, settings=DecodingSettings())))
    return models.of_averaging(trainings)


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [([1.0, 1.2, 0.8], "holds"), ([1.0, -0.9, 0.2], "within noise"), ([-1.0, -1.2, -0.8], "fails")],
)
def test_averaging(gains: list[float], verdict: str) -> None:
    """By the mean difference over the seeds and its interval."""
    assert averaging(gains, [0, 0, 0])["averaging"].verdict == verdict


def test_a_single_training_left_is_not_judged() -> None:
    """Where the others failed there is no noise; both claims are then "not run"."""
    assert averaging([1.0], [0.0]) == {}


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.3, -0.1, 0.1], "within noise"),
        ([-0.3, 0.2, -0.1], "within noise"),  # a lead that may be chance
        ([0.3, 0.31, 0.32], "fails"),
        ([-0.3, -0.31, -0.32], "holds"),
    ],
)
def test_the_papers_beam(gains: list[float], verdict: str) -> None:
    """It holds where it is better beyond noise than the best of the others, and fails where that is."""
    judged = averaging([1.0, 1.1, 0.9], gains)["beam"]
    assert judged.verdict == verdict
    assert judged.seeds == 3


def test_orderings_are_judged_by_both_figures(trained_row: Callable[..., RowTrainings]) -> None:
    """Label smoothing, far beyond the noise of base's seeds, either way; rows that are not there are not run."""
    rows = [trained_row("base", 7.0, 7.01, errors=(1,)), trained_row("D3", 6.0, errors=(3,))]
    table, _ = table3.compute(rows)
    judged = {text: (section, judged.verdict) for section, text, judged in models.of_table3(table)}
    said = "label smoothing hurts perplexity but improves BLEU"
    assert judged[f"{said}, by perplexity"] == judged[f"{said}, by BLEU"] == ("5.4", "holds")
    assert judged["dropout helps, by BLEU"] == ("6.2", "not run")
    turned, _ = table3.compute([rows[0], trained_row("D3", 8.0, errors=(0,), seed=7)])
    assert {judged.verdict for _, text, judged in models.of_table3(turned) if text.startswith(said)} == {"fails"}
    assert {judged.verdict for _, _, judged in models.of_table3(None)} == {"not run"}


def table4(f1: float, training: str = models.WSJ_ONLY, repaired: int = 5, more: float | None = None) -> Results:
    """A table with one measured parser and its free search for 100 trees; `more` is the F1 of one with silver trees."""
    of_training = {training: f1} | ({"semi-supervised": more} if more else {})
    rows = [Row("Transformer", "measured", {"training": name, "f1": value}) for name, value in of_training.items()]
    search = Row(training, "", {"search": "free", "f1": f1, "repaired": repaired, "sentences": 100})
    return Results([Table("Table 4", [], rows), Table(SEARCHES, [], [search])], [], [], {})


LENGTHS = [(10, 30), (12, 40), (9, 9)]


@pytest.mark.parametrize(
    ("key", "holds", "fails"),
    [
        ("berkeley", table4(90.41), table4(90.39)),
        ("all but one", table4(90.41), table4(90.4)),
        ("all but one", table4(95.0, more=93.01), table4(95.0, more=93.0)),
        ("constraints", table4(90.0), table4(90.0, repaired=6)),
    ],
)
def test_the_parser(key: str, holds: Results, fails: Results) -> None:
    """BerkeleyParser has 90.4; of parsers that learn from more than WSJ the best has 93.0; 5 % may be no tree."""
    assert models.of_table4(holds, LENGTHS)[key].verdict == "holds"
    assert models.of_table4(fails, LENGTHS)[key].verdict == "fails"


def test_other_trees_are_not_compared() -> None:
    """But their lengths are counted: two of three trees are longer than their sentences."""
    judged = models.of_table4(table4(99.0, "generated trees only"), LENGTHS)
    assert judged["berkeley"].verdict == judged["all but one"].verdict == "not measurable here"
    assert judged["longer"] == Judged("holds", "2.5 × as long in tokens; longer in 67 % of the sentences")
    assert models.of_table4(table4(99.0), [(s, min(s, t)) for s, t in LENGTHS])["longer"].verdict == "fails"
    nothing = models.of_table4(None, [])
    assert {key: judged.paper for key, judged in nothing.items()} == {
        "berkeley": "yes: +0.9 F1",
        "all but one": "no: -0.3 F1",  # 92.7, and Luong et al. have 93.0
    }


RELATION = RelationFigures(
    relation="pronoun to antecedent",
    cases=300,
    chance=0.1,
    offset=-3,
    offset_share=0.3,
    best_layer=2,
    best_head=1,
    best_share=0.7,
    best_interval=(0.6, 0.8),
    heads=(HeadShare(layer=2, head=1, share=0.7, weight=0.5),),
)
HEAD = HeadFigures(
    kind="encoder",
    layer=1,
    head=1,
    entropy=1.0,
    distance=1.0,
    previous=0.6,
    next=0.1,
    same=0.1,
    separator=0.0,
    perplexity_without=9.0,
    perplexity_change=1.0,
)


@pytest.mark.parametrize(
    ("interval", "verdict"), [((0.31, 0.5), "holds"), ((0.2, 0.4), "within noise"), ((0.1, 0.29), "fails")]
)
@pytest.mark.parametrize(
    ("key", "name"), [("distant", "verb to distant object"), ("anaphora", "pronoun to antecedent")]
)
def test_relations(key: str, name: str, interval: tuple[float, float], verdict: str) -> None:
    """A head must beat the best fixed offset, 30 %, by its whole interval."""
    relation = RELATION.model_copy(update={"relation": name, "best_interval": interval})
    assert models.of_heads([relation], [])[key].verdict == verdict


def test_sharpness_and_tasks() -> None:
    """Half of the attention is sharp; heads that look to the same place have one task."""
    assert models.of_heads([RELATION], [])["sharp"].verdict == "holds"
    pale = RELATION.model_copy(update={"heads": (RELATION.heads[0].model_copy(update={"weight": 0.49}),)})
    assert models.of_heads([pale], [])["sharp"].verdict == "fails"
    other = HEAD.model_copy(update={"previous": 0.1, "next": 0.7, "head": 2})
    assert models.of_heads([], [HEAD, other])["tasks"].verdict == "holds"
    assert models.of_heads([], [HEAD, HEAD])["tasks"].verdict == "fails"


@pytest.mark.parametrize(
    ("beyond", "verdict"), [(1.01, "holds"), (0.99, "within noise"), (-0.99, "within noise"), (-1.01, "fails")]
)
def test_one_head_by_its_size(beyond: float, verdict: str, trained_row: Callable[..., RowTrainings]) -> None:
    """Worse than the best of the other rows by more than noise allows, or less; without noise nothing is said."""
    table, _ = table3.compute([trained_row("base", 7.0, 7.0, errors=(0, 1)), trained_row("A1", 7.0)])
    base, a1 = table.tables[0].rows
    (bleu, deviation) = (base.number(key) for key in ("bleu", "bleu.deviation"))
    assert bleu is not None
    assert deviation is not None
    limit = Noise(2, {"bleu": deviation}).limit("bleu", 1, 2)

    def judged(of_base: dict[str, object]) -> dict[str, Judged]:
        rows = [
            replace(base, values={**base.values, **of_base}),
            replace(a1, values={**a1.values, "bleu": bleu - beyond * limit}),
        ]
        return models.of_one_head(replace(table, tables=[replace(table.tables[0], rows=rows)]))

    assert judged({})["one head"].verdict == verdict
    assert judged({"bleu.deviation": None}) == {}


def test_every_sentence_has_a_judge() -> None:
    """Of the claims of §6 and the figures, none is left out here."""
    keys = {
        *models.of_table2(None),
        "averaging",
        "beam",
        "one head",
        "berkeley",
        "all but one",
        "longer",
        "constraints",
    }
    keys |= {"distant", "anaphora", "sharp", "tasks"}
    assert keys == {claim.key for claim in sentences.CLAIMS if claim.section[0] in "6f"}
