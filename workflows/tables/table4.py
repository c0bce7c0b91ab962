"""Computes Table 4 (§6.3): F1 of parsers, the paper's printed rows above those measured here.

    python -m workflows.reproduce_table4

A measured figure comes from an artifact's file; a row that was not run, or whose trainings failed, says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.evaluation.tree_scores import TreeScores
from pipeline.store.artifact import JsonArtifact
from workflows import paper
from workflows.quantities import duration
from workflows.tables.differences import Difference
from workflows.tables.parser_differences import parser_differences
from workflows.tables.parser_measurements import WSJ, ParserRow, SearchedTrees
from workflows.tables.provenance import provenance_notes
from workflows.tables.text_table import Column, Line, TextTable, by_origin, numbers, words

RIGHT_BRANCHING = "right-branching trees"
NO_TRAINING = "none"
CHOSEN = ", chosen"
State = Literal["printed", "measured", "not run", "failed"]


@dataclass(frozen=True)
class Table4Row:
    """A row of the table; figures are in percent, and None where there is none."""

    name: str
    origin: Literal["paper", "measured"]
    training: str
    f1: float | None
    """EVALB's labelled F1, of all sentences."""
    state: State
    printed_f1: str = ""
    """F1 with the digits that the paper prints; empty in a measured row."""
    f1_short: float | None = None
    """Of sentences of at most 40 words."""
    recall: float | None = None
    precision: float | None = None
    complete_match: float | None = None
    sentences: int | None = None
    valid: int | None = None
    """Sentences that EVALB scores."""
    reason: str = ""
    """Why there is no figure, where the trainings failed."""

    def texts(self) -> list[str]:
        """Returns the texts to show; where a figure is missing, the reason."""
        f1 = self.printed_f1 or (self.state if self.f1 is None else f"{self.f1:.2f}")
        others = ("" if figure is None else f"{figure:.2f}" for figure in (self.f1_short, self.recall, self.precision))
        return [self.name, self.training, f1, *others, "" if self.valid is None else f"{self.valid:,}"]


@dataclass(frozen=True)
class CandidateRow:
    """A training among which a parser was chosen; figures are None where it has no results."""

    name: str
    training: str
    is_chosen: bool
    state: str
    reason: str = ""
    dropout: float | None = None
    attention_dropout: float | None = None
    learning_rate_scale: float | None = None
    dev_f1: float | None = None
    dev_perplexity: float | None = None
    train_s: float | None = None

    def texts(self) -> list[str]:
        """Returns the texts to show: name, both dropouts, learning rate, F1 on the dev set, time of the training."""
        if self.dev_f1 is None or self.train_s is None:
            return [self.name, "", "", "", self.state, ""]
        rate = f"× {self.learning_rate_scale:g}"
        dropouts = f"{self.dropout:g}", f"{self.attention_dropout:g}"
        return [self.name + CHOSEN * self.is_chosen, *dropouts, rate, f"{self.dev_f1:.2f}", duration(self.train_s)]


@dataclass(frozen=True)
class BeamRow:
    """A size of the beam with which the dev set was parsed."""

    training: str
    beam_size: int
    dev_f1: float
    is_chosen: bool


@dataclass(frozen=True)
class SearchRow:
    """A search for the trees of the test set."""

    training: str
    search: Literal["free", "constrained"]
    f1: float
    repaired: int
    """Sentences whose output was no tree over its words."""
    repairs: Mapping[str, int]
    """Repairs by kind."""
    sentences: int
    sentences_s: float
    """Sentences a second, of one worker."""

    def texts(self) -> list[str]:
        """Returns the texts to show: training, search, F1, repaired sentences, repairs by kind."""
        repairs = ", ".join(f"{number} {kind}" for kind, number in self.repairs.items()) or "none"
        return [self.training, self.search, f"{self.f1:.2f}", f"{self.repaired} of {self.sentences}", repairs]


@dataclass(frozen=True)
class LengthRow:
    """F1 of the sentences of a range of lengths."""

    training: str
    words: str
    sentences: int
    f1: float


@dataclass(frozen=True)
class Table4:
    """The table with everything that stands beneath it."""

    rows: list[Table4Row]
    candidates: list[CandidateRow]
    beams: list[BeamRow]
    searches: list[SearchRow]
    lengths: list[LengthRow]
    differences: list[Difference]
    notes: list[str]

    def figures(self) -> dict[str, float]:
        """Returns the main figures, by their names in MLflow."""
        return {
            "f1." + mlflow_name(f"{row.name} {row.training}"): row.f1
            for row in self.rows
            if row.state == "measured" and row.f1 is not None
        }

    def shown(self) -> list[TextTable]:
        """Returns F1, printed rows above measured ones; then the candidates, beams, searches and lengths there are."""
        columns = [
            *words("parser", "training"),
            *numbers("F1", "F1, ≤ 40"),
            *(Column(heading, is_number=True, on_terminal=False) for heading in ("recall", "precision", "sentences")),
        ]
        lines = by_origin(
            *([row.texts() for row in self.rows if row.origin == origin] for origin in ("paper", "measured"))
        )
        candidates, searches = ([Line(row.texts()) for row in rows] for rows in (self.candidates, self.searches))
        beams = [
            Line([row.training, f"{row.beam_size}{CHOSEN * row.is_chosen}", f"{row.dev_f1:.2f}"]) for row in self.beams
        ]
        lengths = [Line([row.training, row.words, f"{row.sentences:,}", f"{row.f1:.2f}"]) for row in self.lengths]
        tables = [
            TextTable("Table 4", columns, lines, "≤ 40 are the sentences of at most 40 words."),
            TextTable(
                "Chosen on the dev set",
                [Column("candidate"), *numbers("dropout", "of attention", "learning rate", "F1", "time")],
                candidates,
            ),
            TextTable("Beams on the dev set", [Column("training"), *numbers("beam", "F1")], beams),
            TextTable(
                "Outputs that were no tree",
                [*words("training", "search"), *numbers("F1", "repaired"), Column("repairs")],
                searches,
                "A parser may write any symbols; each output was made a tree over the words of its sentence.",
            ),
            TextTable("F1 by length", [*words("training", "words"), *numbers("sentences", "F1")], lengths),
        ]
        return [table for table in tables if table.lines]


class Table4Artifact(JsonArtifact[Table4]):
    """`table4.json`, `table4.md` and `report.html`."""

    figures_file = "table4.json"


def mlflow_name(text: str) -> str:
    """Returns a text without the characters that MLflow refuses in names."""
    return "".join(character if character.isalnum() or character in "-_. /" else "" for character in text)


def compute(rows: Sequence[ParserRow]) -> Table4:
    """Computes the table of the rows that were run."""
    return Table4(
        _rows(rows),
        [line for row in rows for line in _candidates(row)],
        [line for row in rows for line in _beams(row)],
        [line for row in rows for line in _searches(row)],
        [line for row in rows for line in _lengths(row)],
        parser_differences(rows),
        _notes(rows),
    )


def name_of(row: ParserRow) -> str:
    """Returns the name of a measured row: with its layers, and its data unless they are the paper's."""
    n_layers = row.chosen.config.n_layers if row.chosen else None
    layers = "" if n_layers is None else f" ({n_layers} layer{'s' * (n_layers > 1)})"
    return f"Transformer{layers}{_suffix(row)}"


def training_of(row: ParserRow) -> str:
    """Returns what a measured row was trained on: the paper's words where it is the paper's data."""
    if row.data == WSJ:
        return row.training
    return row.training if row.training == "semi-supervised" else f"{row.data} only"


def _suffix(row: ParserRow) -> str:
    return "" if row.data == WSJ else f", {row.data}"


def _rows(rows: Sequence[ParserRow]) -> list[Table4Row]:
    table = [
        Table4Row(row.name, "paper", row.training, float(row.f1), "printed", printed_f1=row.f1) for row in paper.TABLE_4
    ]
    for row in rows[:1]:  # the sentences of the test set are the same in every row
        table.append(_scored(f"{RIGHT_BRANCHING}{_suffix(row)}", NO_TRAINING, row.baseline_scores))
    for row in rows:
        if row.free:
            table.append(_scored(name_of(row), training_of(row), row.free.measured))
        else:
            reason = "; ".join(f"{name} failed: {why}" for name, why in row.failures.items())
            table.append(Table4Row(name_of(row), "measured", training_of(row), None, "failed", reason=reason))
    run = {row.training for row in rows}
    table += [
        Table4Row("Transformer", "measured", training, None, "not run")
        for training in dict.fromkeys(row.training for row in paper.TABLE_4 if row.name.startswith("Transformer"))
        if training not in run
    ]
    return table


def _scored(name: str, training: str, scores: TreeScores) -> Table4Row:
    total = scores.total
    return Table4Row(
        name,
        "measured",
        training,
        total.f1,
        "measured",
        f1_short=scores.short.f1 if scores.short.valid else None,
        recall=total.recall,
        precision=total.precision,
        complete_match=total.complete_match,
        sentences=total.sentences,
        valid=total.valid,
    )


def _candidates(row: ParserRow) -> list[CandidateRow]:
    measured = [
        CandidateRow(
            candidate.model,
            training_of(row),
            candidate is row.chosen,
            "measured",
            dropout=candidate.config.dropout,
            attention_dropout=candidate.config.attention_dropout,
            learning_rate_scale=candidate.settings.optimizer.learning_rate_scale,
            dev_f1=candidate.total.f1,
            dev_perplexity=candidate.dev.dev_perplexity,
            train_s=candidate.run.train_s,
        )
        for candidate in row.candidates
    ]
    return measured + [CandidateRow(name, training_of(row), False, "failed", why) for name, why in row.failures.items()]


def _beams(row: ParserRow) -> list[BeamRow]:
    if row.choice is None:
        return []
    chosen = row.choice.settings.beam_size
    return [BeamRow(training_of(row), size, f1, size == chosen) for size, f1 in sorted(row.choice.beams.items())]


def _searches(row: ParserRow) -> list[SearchRow]:
    searches: dict[Literal["free", "constrained"], SearchedTrees | None] = {
        "free": row.free,
        "constrained": row.constrained,
    }
    return [
        SearchRow(
            training_of(row),
            kind,
            search.measured.total.f1,
            search.parsed.repaired,
            search.parsed.repairs,
            search.parsed.sentences,
            search.sentences_s,
        )
        for kind, search in searches.items()
        if search
    ]


def _lengths(row: ParserRow) -> list[LengthRow]:
    groups = row.free.measured.by_length.items() if row.free else ()
    return [LengthRow(training_of(row), words, scores.sentences, scores.f1) for words, scores in groups]


def _notes(rows: Sequence[ParserRow]) -> list[str]:
    chosen = [row.chosen for row in rows if row.chosen]
    notes = [
        "F1 is that of labelled constituents over all sentences of the test set, in percent, as EVALB computes it with "
        "COLLINS.prm: TOP and punctuation do not count, and ADVP and PRT are the same.",
        "The paper prints neither the number of updates nor whether checkpoints were averaged; the differences above "
        "are from base, EN-DE, from which it says that all other parameters remained unchanged.",
        "The trees that are scored carry the tags of the gold trees, so that punctuation is left out of both alike, "
        "and tagging accuracy is not reported.",
        "Right-branching trees are a baseline: from each word on a constituent to the end of the sentence, all with "
        "one label, the most frequent in the training trees for a constituent that ends there.",
    ]
    if any(row.data != WSJ for row in rows):
        names = " and ".join(dict.fromkeys(row.data for row in rows))
        notes.append(
            f"The measured rows are of {names}, not of the paper's treebank, so they cannot be compared with the "
            "printed ones."
        )
    run = {row.training for row in rows}
    if rows and "semi-supervised" not in run:
        notes.append("The semi-supervised row was not run: --silver FILE adds automatically parsed trees to training.")
    notes += [
        f"{name_of(row)}, {training_of(row)}: {name} failed: {why}"
        for row in rows
        for name, why in row.failures.items()
    ]
    return [*notes, *provenance_notes(chosen)]
