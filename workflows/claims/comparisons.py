"""Claims that compare with printed results of other models: translators (§1, §6.1, §7) and parsers (§6.3).

Each is judged twice: by the paper's printed values, and by measurements here on the same data. Printed values count
as exact.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workflows import paper
from workflows.claims.claim import Claim, Effect, Finding, Printed
from workflows.claims.inference import at_least, paired, ratio
from workflows.quantities import flop_text

Scores = Mapping[tuple[str, str], Sequence[tuple[float, float | None]]]
"""Paper BLEU and FLOP by the paper's method of each run, by language pair and model."""
ParserScores = Mapping[str, Sequence[float]]
"""F1 of each run, by training data."""
TRANSFORMER, ENSEMBLE, WSJ_ONLY, SEMI_SUPERVISED = (
    "Transformer",
    "ensemble",
    "WSJ only, discriminative",
    "semi-supervised",
)
BERKELEY_PARSER, RNN_GRAMMAR = "Petrov et al. (2006)", "Dyer et al. (2016)"
"""The BerkeleyParser and the Recurrent Neural Network Grammar of §6.3, by their names in Table 4."""
BIG_EN_FR_IN_TEXT = 41.0
"""BLEU of big, EN-FR, in the text of §6.1; Table 2 and the abstract print 41.8."""
ON_WMT14 = "python -m workflows.reproduce_table2 --profile wmt14"
EIGHT_P100 = "the authors' machine: eight NVIDIA P100"
ON_WSJ = "python -m workflows.reproduce_table4 --treebank WSJ"


class Cell(NamedTuple):
    """A cell of Table 2 and the rivals it is compared with."""

    pair: str
    model: str
    single: bool = False
    """Whether to exclude ensembles."""

    @property
    def rivals(self) -> list[paper.PrintedRow]:
        """The rows of other models."""
        others = [row for row in paper.TABLE_2 if not row.name.startswith(TRANSFORMER) and self.pair in row.bleu]
        return [row for row in others if not (self.single and ENSEMBLE in row.name)]

    @property
    def best(self) -> paper.PrintedRow:
        """The rival with the best BLEU."""
        return max(self.rivals, key=lambda row: float(row.bleu[self.pair]))

    @property
    def best_bleu(self) -> float:
        """BLEU of that rival."""
        return float(self.best.bleu[self.pair])

    @property
    def printed(self) -> paper.PrintedRow:
        """The row of the Transformer."""
        return next(row for row in paper.TABLE_2 if row.name == paper.TRANSFORMERS[self.model])

    @property
    def bleu(self) -> float:
        """BLEU of the Transformer, as Table 2 prints it."""
        return float(self.printed.bleu[self.pair])


def _by_rounding(text: str, *margins: float, more_than: float = 0.0) -> Printed:
    """Returns the verdict of printed values: each margin must exceed a limit."""
    return Printed("holds" if all(round(margin, 6) > more_than for margin in margins) else "fails", text)


def _better(section: str, text: str, *cells: Cell, by: float = 0.0) -> Claim:
    """Returns the claim that BLEU in each of these cells is above the rivals' BLEU."""

    def judge(scores: Scores) -> Finding | None:
        if not all(scores.get((cell.pair, cell.model)) for cell in cells):
            return None
        tested = [
            paired([bleu - cell.best_bleu for bleu, _ in scores[cell.pair, cell.model]], at_least(by)) for cell in cells
        ]
        effects = (
            Effect.of(
                f"{cell.pair.upper()} {cell.model} − {cell.best_bleu:g}", "BLEU", each, cell.bleu - cell.best_bleu
            )
            for cell, each in zip(cells, tested, strict=True)
        )
        return Finding.of(tested, effects)

    compared = [(cell.bleu, cell.best_bleu) for cell in cells]
    in_text = [(BIG_EN_FR_IN_TEXT, cell.best_bleu) for cell in cells if (cell.pair, cell.model) == ("en-fr", "big")]
    words = [f"{ours} − {best} = {ours - best:+.2f} BLEU" for ours, best in (*compared, *in_text)]
    words[len(compared) :] = [f"by §6.1's text {each}" for each in words[len(compared) :]]
    printed = _by_rounding("; ".join(words), *(ours - best for ours, best in (*compared, *in_text)), more_than=by)
    return Claim(section, text, "Table 2", ("table2",), judge, "printed", "WMT14", ON_WMT14, printed)


def _cheaper(text: str, cell: Cell, than: float, fraction: float = 1.0) -> Claim:
    """Returns the claim that a model's training costs less than a fraction of a printed cost, in FLOP."""

    def judge(scores: Scores) -> Finding | None:
        costs = [cost for _, cost in scores.get((cell.pair, cell.model), ()) if cost is not None]
        if not costs:
            return None
        tested = ratio([than] * len(costs), costs, at_least(1 / fraction))
        return Finding.of([tested], [Effect.of(f"{flop_text(than)} / cost of {cell.model}", "×", tested, than / flop)])

    flop = cell.printed.cost_flop[cell.pair]
    words = f"{flop_text(flop)} / {flop_text(than)} = {flop / than:.2f}"
    printed = _by_rounding(words, fraction - flop / than)
    return Claim("6.1", text, "Table 2", ("table2",), judge, "printed", "WMT14", ON_WMT14, printed)


def _duration(text: str, model: str, printed_h: float) -> Claim:
    """Returns the claim that a run's steps add up to the stated duration, to the printed digits (§5.2)."""
    trained = paper.experiment("en-de", model)
    low_h, high_h = (trained.updates * (trained.step_s + half) / 3600 for half in (-0.05, 0.05))
    words = (
        f"{trained.updates:,} × {trained.step_s} s = {trained.updates * trained.step_s / 3600:.1f} h, by rounding "
        f"{low_h:.1f} to {high_h:.1f} h; printed {printed_h:g} h"
    )
    printed = _by_rounding(words, printed_h - low_h, high_h - printed_h)
    return Claim("5.2", text, "Table 2", kind="printed", lacks=EIGHT_P100, printed=printed)


def _best_parser(training: str, others: Sequence[str] | None) -> paper.Parser:
    """Returns the best of other parsers.

    Parsers trained only on WSJ are compared with each other, and all other parsers with those that had more data.
    `others` names the parsers to compare with; None means all except the RNN Grammar.
    """
    rows = [
        row
        for row in paper.TABLE_4
        if not row.name.startswith(TRANSFORMER)
        and (row.training == WSJ_ONLY) == (training == WSJ_ONLY)
        and (row.name != RNN_GRAMMAR if others is None else row.name in others)
    ]
    return max(rows, key=lambda row: float(row.f1))


def _parser(text: str, trainings: Sequence[str], others: Sequence[str] | None = None) -> Claim:
    """Returns the claim that parsers with this training data are better than others."""
    rivals = {training: _best_parser(training, others) for training in trainings}
    margins = {training: round(PRINTED_F1[training] - float(best.f1), 1) for training, best in rivals.items()}

    def judge(scores: ParserScores) -> Finding | None:
        if not all(scores.get(training) for training in trainings):
            return None
        tested = [paired([f1 - float(rivals[training].f1) for f1 in scores[training]]) for training in trainings]
        effects = (
            Effect.of(f"{training} − {rivals[training].f1}", "F1", each, margins[training])
            for training, each in zip(trainings, tested, strict=True)
        )
        return Finding.of(tested, effects)

    words = (
        f"{PRINTED_F1[training]:g} − {best.f1} ({best.name}, {best.training}) = {margins[training]:+.1f} F1"
        for training, best in rivals.items()
    )
    printed = _by_rounding("; ".join(words), *margins.values())
    return Claim("6.3", text, "Table 4", ("table4",), judge, "printed", "WSJ", ON_WSJ, printed)


PRINTED_F1: dict[str, float] = {
    row.training: float(row.f1) for row in paper.TABLE_4 if row.name.startswith(TRANSFORMER)
}

BASE_EN_DE, BIG_EN_DE, BIG_EN_FR = Cell("en-de", "base"), Cell("en-de", "big"), Cell("en-fr", "big", single=True)
TABLE_2: tuple[Claim, ...] = (
    _better("1", "a new state of the art after twelve hours on eight P100 GPUs", BASE_EN_DE),
    _duration("base takes 100,000 steps or 12 hours", "base", 12.0),
    _duration("big takes 300,000 steps (3.5 days)", "big", 84.0),
    _better(
        "6.1",
        "EN-DE: big outperforms all models before, ensembles included, by more than 2.0 BLEU",
        BIG_EN_DE,
        by=2.0,
    ),
    _cheaper(
        "EN-DE: base costs a fraction of any of the competitive models",
        BASE_EN_DE,
        min(row.cost_flop["en-de"] for row in BASE_EN_DE.rivals if "en-de" in row.cost_flop),
    ),
    _better("6.1", "EN-FR: big outperforms all single models before", BIG_EN_FR),
    _cheaper(
        "EN-FR: at less than 1/4 of the training cost of the best of them",
        BIG_EN_FR,
        BIG_EN_FR.best.cost_flop["en-fr"],
        1 / 4,
    ),
    _better("7", "a new state of the art on both tasks: on EN-DE, ahead even of all ensembles", BIG_EN_DE, BIG_EN_FR),
    _better(
        "table 2",
        "the Transformer, base or big, achieves better BLEU than the single models before on both pairs (caption)",
        *(Cell(pair, model, single=True) for pair in paper.PAIRS for model in paper.TRANSFORMERS),
    ),
)
TABLE_4: tuple[Claim, ...] = (
    _parser(
        "the Transformer outperforms the BerkeleyParser even when trained on WSJ only", [WSJ_ONLY], [BERKELEY_PARSER]
    ),
    _parser("better than all models before but the Recurrent Neural Network Grammar", [WSJ_ONLY, SEMI_SUPERVISED]),
)
