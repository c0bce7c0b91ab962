"""Compares the experiment behind each parser with the paper's (§6.3)."""

from collections.abc import Sequence

from workflows import paper
from workflows.quantities import rounded
from workflows.tables.differences import (
    ASPECTS,
    MODEL_NAMES,
    OPTIMIZER_NAMES,
    Aspect,
    Difference,
    differences,
    differing_fields,
    is_near,
)
from workflows.tables.measurements import TrainedModel
from workflows.tables.parser_measurements import WSJ, CandidateParser, ParserRow

CHOSEN = {"dropout", "attention_dropout", "learning_rate_scale"}
"""Values that the paper chose on its dev set and does not print."""
_PRINTED_OF_MODEL = {name: symbol for name, symbol in MODEL_NAMES.items() if name not in CHOSEN}
_PRINTED_OF_OPTIMIZER = {name: symbol for name, symbol in OPTIMIZER_NAMES.items() if name not in CHOSEN}


def _data(cell: CandidateParser, printed: paper.Experiment) -> tuple[str, str]:
    recombined = cell.recombined_trees
    here = f"{cell.data}, {rounded(cell.train_pairs - recombined)} trees"
    if recombined:
        here += f", and {rounded(recombined)} recombined of their constituents"
    is_same = not recombined and cell.data == WSJ and is_near(cell.train_pairs, printed.pairs, 0.1)
    return f"{printed.corpus}, about {rounded(printed.pairs)} trees", "" if is_same else here


def _word_symbol(cell: CandidateParser, _printed: paper.Experiment) -> tuple[str, str]:
    return "the same for all words", "names the word's tag" if cell.writes_tags else ""


def _test_set(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    here = "" if cell.data == WSJ else f"{cell.data}, held out"
    return printed.test_set, here


def _model(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    return differing_fields(_PRINTED_OF_MODEL, printed.model, cell.config)


def _optimizer(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    return differing_fields(_PRINTED_OF_OPTIMIZER, printed, cell.settings.optimizer)


ASPECTS_OF_PARSERS: dict[str, Aspect[CandidateParser]] = {
    "training data": _data,
    "symbol of a word": _word_symbol,
    "test set": _test_set,
    "vocabulary": ASPECTS["vocabulary"],
    "model": _model,
    "updates": ASPECTS["updates"],
    "tokens per update": ASPECTS["tokens per update"],
    "optimizer": _optimizer,
    "averaged checkpoints": ASPECTS["averaged checkpoints"],
    "search on the dev set": ASPECTS["decoding"],
    "hardware": ASPECTS["hardware"],
}


def parser_differences(rows: Sequence[ParserRow]) -> list[Difference]:
    """Compares the chosen candidates with the paper's parsers."""
    training = {row.chosen.model: row.training for row in rows if row.chosen}
    chosen = [row.chosen for row in rows if row.chosen]
    entries = differences(chosen, lambda _pair, model: paper.parser_experiment(training[model]), ASPECTS_OF_PARSERS)
    tried: dict[str, list[str]] = {}
    for row in rows:
        dropouts = {candidate.config.attention_dropout for candidate in row.candidates}
        if row.chosen and len(dropouts) == 1:
            tried.setdefault(f"{dropouts.pop():g}, the only one tried", []).append(row.chosen.label)
    return entries + [
        Difference("dropout of attention weights", "chosen on section 22, not printed", here, tuple(labels))
        for here, labels in tried.items()
    ]
