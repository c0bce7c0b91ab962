"""Computes Table 2 (§6.1): BLEU and training cost, the paper's rows above the measured rows.

    python -m workflows.reproduce_table2

Measured numbers come from artifacts' files; cells that failed or were not run say so. The differences from the paper
and notes on how to read the scores always follow the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from pipeline.evaluation.search_choice import DecodingChoiceRecord
from pipeline.store.records import NOT_DEFINED, ScoringRecord
from workflows import paper
from workflows.engine.dag import to_artifact
from workflows.profiles.profile import COMPETITORS
from workflows.tables.differences import differences
from workflows.tables.measurements import Translation
from workflows.tables.provenance import rate_notes, reading_notes
from workflows.tables.table import (
    FAILED,
    MILLION,
    NAME,
    NOT_MEASURED,
    NOT_RUN,
    Column,
    Results,
    ResultsArtifact,
    Row,
    Table,
    Value,
)

MEASURED_NAMES = {
    **paper.TRANSFORMERS,
    "recurrent": "Recurrent (GNMT-like)",
    "convolutional": "Convolutional (ConvS2S-like)",
}
WORD_BY_WORD = "word-by-word"
OTHER_TEXT = ("training data", "test set")
"""The aspects that are equal if a cell uses the paper's text."""
SCORES = {"paper_bleu": "paper BLEU", "sacrebleu": "sacreBLEU"}
COSTS = {"paper_way_flop": "FLOP, paper's", "counted_flop": "FLOP, counted"}
"""Headings of the values per language pair, whose keys are e.g. `en-de.paper_bleu`."""
OF_MODELS = (
    Column(NAME, "model"),
    Column("parameters", "parameters, M", "training", spec=".2f", unit=MILLION),
    Column("train_s", "time", "training", unit="s"),
    Column("tokens_s", "target tokens/s", "training", spec=",.0f"),
    Column("dev_nll", "dev NLL", "quality", spec=".3f"),
    Column("chrf", "chrF", "quality", spec=".2f"),
)
"""Further measurements of each model."""


NONE_FAILED: Mapping[str, str] = MappingProxyType({})


class Table2Artifact(ResultsArtifact):
    """`table2.json`, `table2.md` and `report.html`."""

    record_file = "table2.json"


def compute(measured: Sequence[Translation], failures: Mapping[str, str] = NONE_FAILED) -> Results:
    """Computes the table; `failures` maps labels to reasons. The paper's language pairs come first."""
    pairs = list(dict.fromkeys([*paper.PAIRS, *(cell.pair for cell in measured)]))
    columns = [
        Column(NAME, "model"),
        *(Column(f"{pair}.{key}", SCORES[key], pair.upper(), spec=".2f") for pair in pairs for key in SCORES),
        *(Column(f"{pair}.{key}", COSTS[key], pair.upper(), unit="FLOP") for pair in pairs for key in COSTS),
    ]
    rows = [*map(_printed, paper.TABLE_2), *_word_by_word(measured), *_models(measured, pairs, failures)]
    explanation = "Training cost is in FLOP, by the paper's method and by counting."
    choices = {cell.label: to_artifact(cell.decoding_choice).load() for cell in measured if cell.decoding_choice}
    return Results(
        [Table("Table 2", columns, rows, explanation), *_measured_models(measured), *chosen_searches(choices)],
        differences(measured),
        _notes(measured, failures),
        _metrics(sorted(measured, key=lambda cell: pairs.index(cell.pair))),
    )


def _measured_models(measured: Sequence[Translation]) -> Iterator[Table]:
    """Yields a table of the further measurements of each model, if there are any."""
    rows = [
        Row(
            cell.label,
            "measured",
            {
                "parameters": cell.run.parameters,
                "train_s": cell.run.train_s,
                "tokens_s": cell.run.target_tokens / cell.run.train_s,
                "dev_nll": cell.dev.dev_nll,
                "chrf": NOT_MEASURED if cell.main_bleu.chrf is None else cell.main_bleu.chrf,
            },
        )
        for cell in measured
    ]
    if rows:
        explanation = "NLL in nats per target token on the dev set, without label smoothing; chrF on the test set."
        yield Table("Models", OF_MODELS, rows, explanation)


def is_of_other_text(results: Results) -> bool:
    """Whether scores are on other text than the paper's and thus not comparable."""
    return any(difference.what in OTHER_TEXT for difference in results.differences)


def baselines(measured: Sequence[Translation]) -> dict[str, ScoringRecord]:
    """Returns the scores of word-by-word substitution by language pair, if any."""
    return {cell.pair: scores for cell in measured if (scores := cell.baseline)}


def chosen_searches(choices: Mapping[str, DecodingChoiceRecord]) -> Iterator[Table]:
    """Yields a table of the searches' scores on the dev set: one row per beam, one column per α."""
    penalties = sorted({search.length_penalty for choice in choices.values() for search in choice.scores})
    rows = []
    for label, choice in choices.items():
        best = choice.best
        for beam_size, searches in groupby(choice.scores, key=lambda search: search.beam_size):
            values: dict[str, Value] = {f"α {search.length_penalty:g}": search.deciding[1] for search in searches}
            if beam_size == best.beam_size:
                values["chosen"] = f"beam {beam_size}, α {best.length_penalty:g}"
            rows.append(Row(label, "", {"beam": beam_size, **values}))
    if rows:
        scores = (Column(f"α {penalty:g}", f"α {penalty:g}", spec=".2f") for penalty in penalties)
        columns = [Column(NAME, "model"), Column("beam", "beam", spec="d"), *scores, Column("chosen", "chosen")]
        explanation = (
            "Paper BLEU on the dev set, or sacreBLEU if undefined. The test sets were decoded with the chosen search."
        )
        yield Table("Chosen on the dev set: beam and α", columns, rows, explanation)


def _printed(row: paper.PrintedRow) -> Row:
    scores = {f"{pair}.paper_bleu": bleu for pair, bleu in row.bleu.items()}
    costs = {f"{pair}.paper_way_flop": flop for pair, flop in row.cost_flop.items()}
    digits = {key: len(bleu.partition(".")[2]) for key, bleu in scores.items()}
    values = {key: float(bleu) for key, bleu in scores.items()}
    return Row(row.name + " *" * bool(row.footnote), "paper", values | costs, digits)


def _word_by_word(measured: Sequence[Translation]) -> Iterator[Row]:
    values: dict[str, Value] = {}
    for pair, scores in baselines(measured).items():
        values |= _scores(pair, scores)
    if values:
        yield Row(f"{WORD_BY_WORD} substitution", "measured", values)


def _models(measured: Sequence[Translation], pairs: Sequence[str], failures: Mapping[str, str]) -> Iterator[Row]:
    for model, name in MEASURED_NAMES.items():
        values: dict[str, Value] = {}
        labels = {f"{pair.upper()} {model}" for pair in pairs}
        if model in COMPETITORS and labels.isdisjoint([*failures, *(cell.label for cell in measured)]):
            continue  # not among the rows of a run that did not name it
        for pair in pairs:
            state = FAILED if f"{pair.upper()} {model}" in failures else NOT_RUN
            values |= {f"{pair}.{key}": state for key in (*SCORES, *COSTS)}
        for cell in measured:
            if cell.model == model:
                costs = cell.costs
                in_paper_way = NOT_MEASURED if costs.paper_way_flop is None else costs.paper_way_flop
                values |= _scores(cell.pair, cell.main_bleu) | {
                    f"{cell.pair}.paper_way_flop": in_paper_way,
                    f"{cell.pair}.counted_flop": costs.counted_flop,
                }
        yield Row(name, "measured", values)


def _scores(pair: str, scores: ScoringRecord) -> dict[str, Value]:
    paper_bleu = NOT_DEFINED if scores.paper_bleu is None else scores.paper_bleu
    return {f"{pair}.paper_bleu": paper_bleu, f"{pair}.sacrebleu": scores.sacrebleu}


def _metrics(measured: Sequence[Translation]) -> dict[str, float]:
    """Returns paper BLEU of each measured cell, else sacreBLEU, e.g. {"paper BLEU EN-DE base": 27.3, ...}."""
    scored = [(cell.label, cell.main_bleu) for model in MEASURED_NAMES for cell in measured if cell.model == model]
    scored += [(f"{pair.upper()} {WORD_BY_WORD}", scores) for pair, scores in baselines(measured).items()]
    return {
        f"{SCORES['sacrebleu' if scores.paper_bleu is None else 'paper_bleu']} {name}": scores.deciding
        for name, scores in scored
    }


def _notes(cells: Sequence[Translation], failures: Mapping[str, str]) -> list[str]:
    """Explains how to read scores and costs, and lists the measured sustained rates and the other test sets."""
    return [
        *(f"{label} failed: {why}" for label, why in failures.items()),
        *reading_notes(cells),
        "Each measured cell is one run with one seed; variation between seeds was not measured.",
        "Training cost by the paper's method is training time × devices × sustained rate (§6.1), summed over segments "
        "if a run changed devices. The paper's devices are rated in single precision, other devices in the dtype of "
        "the run. Counted cost is the number of operations in the model's matrix products.",
        *rate_notes(cells),
        paper.ONE_COST_NOTE,
        *(row.footnote for row in paper.TABLE_2 if row.footnote),
        *(
            f"{cell.label} on {name}: {scores.text}."
            for cell in cells
            for name, scores in cell.bleu.items()
            if name != cell.test_set
        ),
    ]
