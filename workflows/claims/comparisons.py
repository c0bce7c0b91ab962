"""The claims that compare with printed figures of other models: translators (§1, §6.1, §7) and parsers (§6.3).

Each is decided twice: for the paper's own printed figures, and for what was measured here if it was measured on the
same data. A printed figure has no interval, and one training has no noise to be held against: its verdict is undecided.
"""

from collections.abc import Mapping, Sequence

from workflows import paper
from workflows.claims.claim import Claim, Effect, Finding, Printed
from workflows.claims.inference import POSITIVE, Region, paired
from workflows.quantities import flop_text

Scores = Mapping[tuple[str, str], Sequence[tuple[float, float | None]]]
"""Paper BLEU and FLOP by the paper's method of each training, by language pair and model."""
ParserScores = Mapping[str, Sequence[float]]
"""F1 of each training, by what it was trained on."""
NAMES = {"base": "Transformer (base)", "big": "Transformer (big)"}
TRANSFORMER, ENSEMBLE, WSJ_ONLY, SEMI_SUPERVISED = (
    "Transformer",
    "ensemble",
    "WSJ only, discriminative",
    "semi-supervised",
)
BERKELEY_PARSER, RNN_GRAMMAR = "Petrov et al. (2006)", "Dyer et al. (2016)"
"""What §6.3 calls the BerkeleyParser and the Recurrent Neural Network Grammar, in Table 4."""
BIG_EN_FR_IN_TEXT = 41.0
"""BLEU of big, EN-FR, in the text of §6.1; Table 2 and the abstract print 41.8."""
ON_WMT14 = "python -m workflows.reproduce_table2 --profile wmt14"
ON_WSJ = "python -m workflows.reproduce_table4 --treebank WSJ"


def _before(pair: str, *, single: bool = False) -> list[paper.PrintedRow]:
    """Returns the rows of Table 2 that are not the Transformer's; without ensembles if `single`."""
    others = [row for row in paper.TABLE_2 if not row.name.startswith(TRANSFORMER) and pair in row.bleu]
    return [row for row in others if not (single and ENSEMBLE in row.name)]


def _best(pair: str, *, single: bool = False) -> float:
    return max(float(row.bleu[pair]) for row in _before(pair, single=single))


def _printed(pair: str, model: str) -> paper.PrintedRow:
    (row,) = (row for row in paper.TABLE_2 if row.name == NAMES[model])
    return row


def _margin(value: float, other: float, more_than: float = 0.0, unit: str = "BLEU") -> Printed:
    """Compares two printed figures."""
    return Printed(
        "holds" if round(value - other, 6) > more_than else "fails",
        f"{value:g} − {other:g} = {value - other:+.2f} {unit}",
    )


def _better(
    section: str, text: str, cells: Sequence[tuple[str, str]], *, by: float = 0.0, single: bool = False
) -> Claim:
    """Returns the claim that the BLEU of a model, in each of these cells, is above all models before."""
    region = Region(low=by)

    def judge(scores: Scores) -> Finding | None:
        if not all(scores.get(cell) for cell in cells):
            return None
        effects, tests = [], []
        for pair, model in cells:
            best = _best(pair, single=single)
            tested = paired([bleu - best for bleu, _ in scores[pair, model]], region)
            printed = float(_printed(pair, model).bleu[pair]) - best
            tests.append(tested)
            effects.append(Effect.of(f"{pair.upper()} {model} − {best:g}", "BLEU", tested, region, printed))
        return Finding(max(test.p_holds for test in tests), min(test.p_fails for test in tests), effects)

    found = [_margin(float(_printed(*cell).bleu[cell[0]]), _best(cell[0], single=single), by) for cell in cells]
    printed = Printed(
        "holds" if all(each.verdict == "holds" for each in found) else "fails", "; ".join(each.text for each in found)
    )
    return Claim(section, text, "Table 2", ("table2",), judge, "printed", "WMT14", ON_WMT14, printed)


def _cheaper(text: str, pair: str, model: str, than: float, fraction: float = 1.0) -> Claim:
    """Returns the claim that a model's training costs less than a fraction of a printed cost, in FLOP."""

    def compared(flop: float) -> str:
        return f"{flop_text(flop)} / {flop_text(than)} = {flop / than:.2f}"

    def judge(scores: Scores) -> Finding | None:
        costs = [cost for _, cost in scores.get((pair, model), ()) if cost is not None]
        return Finding.certain(max(costs) < fraction * than, compared(max(costs))) if costs else None

    flop = _printed(pair, model).cost_flop[pair]
    printed = Printed("holds" if flop < fraction * than else "fails", compared(flop))
    return Claim("6.1", text, "Table 2", ("table2",), judge, "printed", "WMT14", ON_WMT14, printed)


def _cheapest(pair: str) -> float:
    return min(row.cost_flop[pair] for row in _before(pair) if pair in row.cost_flop)


def _cost_of_best(pair: str) -> float:
    return max(_before(pair, single=True), key=lambda row: float(row.bleu[pair])).cost_flop[pair]


def _both_tasks() -> Printed:
    """Compares big with the best ensembles: EN-FR by either figure that the paper prints."""
    table = [_margin(float(_printed(pair, "big").bleu[pair]), _best(pair)) for pair in paper.PAIRS]
    text = _margin(BIG_EN_FR_IN_TEXT, _best("en-fr"))
    return Printed("undecided", f"{'; '.join(each.text for each in table)}; by §6.1's text {text.text}")


def _duration(text: str, model: str, printed_h: float) -> Claim:
    """Returns the claim that a training's steps take as long as is said, to the digits that are printed (§5.2)."""
    trained = paper.experiment("en-de", model)
    low_h, high_h = (trained.updates * (trained.step_s + half) / 3600 for half in (-0.05, 0.05))
    found = Printed(
        "holds" if low_h <= printed_h <= high_h else "fails",
        f"{trained.updates:,} × {trained.step_s} s = {trained.updates * trained.step_s / 3600:.1f} h, by rounding "
        f"{low_h:.1f} to {high_h:.1f} h; printed {printed_h:g} h",
    )
    return Claim("5.2", text, "Table 2", kind="printed", data="WMT14", lacks=ON_WMT14, printed=found)


def _f1_margin(training: str, f1: float, others: Sequence[str] | None) -> tuple[float, str]:
    """Returns by how much F1 exceeds the best of other parsers, and which that is.

    A parser that was trained on WSJ only is compared with those that were, too; any other with all that had more.
    `others` are the names of those compared with, None for all but the RNN Grammar.
    """
    rows = [
        row
        for row in paper.TABLE_4
        if not row.name.startswith(TRANSFORMER)
        and (row.training == WSJ_ONLY) == (training == WSJ_ONLY)
        and (row.name != RNN_GRAMMAR if others is None else row.name in others)
    ]
    best = max(rows, key=lambda row: float(row.f1))
    return f1 - float(best.f1), f"{f1:g} − {best.f1} ({best.name}, {best.training}) = {f1 - float(best.f1):+.1f} F1"


def _parser(text: str, trainings: Sequence[str], others: Sequence[str] | None = None) -> Claim:
    """Returns the claim that parsers with these trainings are better than others."""

    def judge(scores: ParserScores) -> Finding | None:
        if not all(scores.get(training) for training in trainings):
            return None
        effects, tests = [], []
        for training in trainings:
            tested = paired([_f1_margin(training, f1, others)[0] for f1 in scores[training]], POSITIVE)
            tests.append(tested)
            effects.append(
                Effect.of(
                    training, "F1", tested, POSITIVE, round(_f1_margin(training, PRINTED_F1[training], others)[0], 1)
                )
            )
        return Finding(max(test.p_holds for test in tests), min(test.p_fails for test in tests), effects)

    margins = [_f1_margin(training, PRINTED_F1[training], others) for training in trainings]
    printed = Printed(
        "holds" if all(margin > 0 for margin, _ in margins) else "fails", "; ".join(words for _, words in margins)
    )
    return Claim("6.3", text, "Table 4", ("table4",), judge, "printed", "WSJ", ON_WSJ, printed)


PRINTED_F1: dict[str, float] = {
    row.training: float(row.f1) for row in paper.TABLE_4 if row.name.startswith(TRANSFORMER)
}

TABLE_2: tuple[Claim, ...] = (
    Claim(
        "1",
        "a new state of the art on both tasks, ensembles included",
        "Table 2",
        kind="printed",
        data="WMT14",
        lacks=ON_WMT14,
        printed=_both_tasks(),
    ),
    _better("1", "a new state of the art after twelve hours on eight P100 GPUs", [("en-de", "base")]),
    _duration("base takes 100,000 steps or 12 hours", "base", 12.0),
    _duration("big takes 300,000 steps (3.5 days)", "big", 84.0),
    _better(
        "6.1",
        "EN-DE: big outperforms all models before, ensembles included, by more than 2.0 BLEU",
        [("en-de", "big")],
        by=2.0,
    ),
    _cheaper("EN-DE: base costs a fraction of any of the competitive models", "en-de", "base", _cheapest("en-de")),
    _better("6.1", "EN-FR: big outperforms all single models before", [("en-fr", "big")], single=True),
    _cheaper(
        "EN-FR: at less than 1/4 of the training cost of the best of them",
        "en-fr",
        "big",
        _cost_of_best("en-fr"),
        1 / 4,
    ),
    _better(
        "table 2",
        "the Transformer achieves better BLEU than the models before on both pairs (caption)",
        [(pair, model) for pair in paper.PAIRS for model in NAMES],
        single=True,
    ),
)
TABLE_4: tuple[Claim, ...] = (
    _parser(
        "the Transformer outperforms the BerkeleyParser even when trained on WSJ only", [WSJ_ONLY], [BERKELEY_PARSER]
    ),
    _parser("better than all models before but the Recurrent Neural Network Grammar", [WSJ_ONLY, SEMI_SUPERVISED]),
)
