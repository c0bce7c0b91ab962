"""Table 4 (§6.3) and its page: F1 of parsers, the paper's rows above the measured rows.

    python -m workflows.reproduce_table4

Measured numbers come from artifacts' files; rows that failed or were not run say so.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipeline.context import Context
from pipeline.evaluation.tree_scores import TreeScores
from pipeline.parsing.trees import Tree, bracketed, drawn, words_of
from pipeline.records import ChoiceRecord
from workflows import paper
from workflows.command_line import UNKNOWN, CommandLine
from workflows.profiles.parsing import wsj_profile
from workflows.quantities import key
from workflows.tables import page
from workflows.tables.corpus import CorpusReport
from workflows.tables.differences import differences, printed
from workflows.tables.facts import WSJ, Fact
from workflows.tables.measured import Cell, Measured, measured
from workflows.tables.provenance import provenance_notes
from workflows.tables.table import NAME, Column, Difference, Missing, Results, ResultsArtifact, Row, Table, Value

RIGHT_BRANCHING = "right-branching trees"
CHOSEN = Column("chosen", "")
F1 = Column("f1", "F1", spec=".2f")
N_DRAWN = 3
"""The number of parses drawn."""
MAX_DRAWN_WORDS = 18
"""The longest sentence drawn, in words."""


@dataclass(frozen=True, kw_only=True)
class ParserRow:
    """A Transformer row: its candidates, the chosen parser, and the trees of the test set.

    Like `Cell`, it has steps while the DAG is built, and in a stage artifacts, which the properties read.
    """

    training: paper.ParserTraining
    data: str
    candidates: tuple[Cell, ...]
    """The candidates with results."""
    failures: Mapping[str, str]
    """Why the other candidates failed, by name."""
    baseline: Any
    """Scores of right-branching trees."""
    parser: Any = None
    """None if no candidate has results, like the next three."""
    hypotheses: Any = None
    parses: Any = None
    scores: Any = None

    @cached_property
    def models(self) -> list[Measured]:
        """The candidates as measured on the dev set."""
        return [measured(candidate) for candidate in self.candidates]

    @cached_property
    def choice(self) -> ChoiceRecord | None:
        """The choice on the dev set; None if no candidate has results."""
        return self.parser.choice if self.parser else None

    @property
    def chosen(self) -> Measured | None:
        """The chosen candidate."""
        return next((each for each in self.models if self.choice and each.cell.model == self.choice.model), None)

    def drawn(self) -> list[tuple[Tree, Tree]]:
        """Returns gold and parsed trees at regular intervals among short test sentences, wrong parses first."""
        pairs = zip(self.parses.gold, self.parses.trees, strict=True) if self.parses else ()
        wrong, right = list[tuple[Tree, Tree]](), list[tuple[Tree, Tree]]()
        for gold, tree in pairs:
            if 6 <= len(words_of(gold)) <= MAX_DRAWN_WORDS:
                (right if bracketed(gold) == bracketed(tree) else wrong).append((gold, tree))
        return [*_evenly(wrong, max(N_DRAWN - 1, N_DRAWN - len(right))), *_evenly(right, N_DRAWN)][:N_DRAWN]


def _evenly(pairs: list[tuple[Tree, Tree]], n: int) -> list[tuple[Tree, Tree]]:
    return pairs[:: max(1, len(pairs) // max(n, 1))][:n]


class Table4Artifact(ResultsArtifact):
    """`table4.json`, `table4.md` and `report.html`."""

    record_file = "table4.json"


def tabulate(
    context: Context, rows: list[ParserRow], reports: Sequence[CorpusReport] = (), command: CommandLine = UNKNOWN
) -> Table4Artifact:
    """Writes Table 4 with the `rows` that were run; `reports` are the reports on their trees."""
    candidates = [candidate for row in rows for candidate in row.models]
    return page.write(
        context,
        Table4Artifact,
        compute(rows),
        lead="English constituency parsing: the paper’s rows, followed by the rows measured here. F1 is in percent.",
        said=said(rows),
        sections=[
            page.learning_curves(candidates),
            *(
                page.Section(
                    f"Parses, {name_of(row)}, {training_of(row)}",
                    "Short sentences at regular intervals through the test set, wrong parses first.",
                    samples=[{"gold": _drawing(gold), "parse": _drawing(parse)} for gold, parse in row.drawn()],
                )
                for row in rows
            ),
        ],
        models=candidates,
        reports=reports,
        command=command,
    )


def compute(rows: Sequence[ParserRow]) -> Results:
    """Computes the table of the rows that were run, then tables of candidates, beams and repairs."""
    columns = [
        Column(NAME, "parser"),
        Column("training", "training"),
        F1,
        Column("f1_short", "F1, ≤ 40", spec=".2f"),
        Column("recall", "recall", spec=".2f", on_terminal=False),
        Column("precision", "precision", spec=".2f", on_terminal=False),
        Column("valid", "sentences", spec=",", on_terminal=False),
    ]
    main = Table("Table 4", columns, [*_rows(rows)], "≤ 40: sentences of at most 40 words.")
    others = [
        Table(
            "Chosen on the dev set",
            [
                Column(NAME, "candidate"),
                Column("dropout", "dropout", spec="g"),
                Column("attention_dropout", "of attention", spec="g"),
                Column("learning_rate_scale", "rate ×", spec="g"),
                F1,
                Column("train_s", "time", unit="s"),
                CHOSEN,
            ],
            [line for row in rows for line in _candidates(row)],
        ),
        Table(
            "Beams on the dev set",
            [Column(NAME, "training"), Column("beam_size", "beam", spec="d"), F1, CHOSEN],
            [line for row in rows for line in _beams(row)],
        ),
        Table(
            "Malformed outputs",
            [
                Column(NAME, "training"),
                Column("repaired", "repaired", spec=","),
                Column("sentences", "sentences", spec=","),
                Column("repairs", "repairs"),
            ],
            [line for row in rows for line in _repairs(row)],
            "A parser may write any symbols; malformed outputs were repaired to trees over their sentences' words.",
        ),
    ]
    metrics = {
        key("f1", re.sub(r"[^\w. /-]", "", f"{row.name} {row.values['training']}")): f1  # MLflow rejects the others
        for row in main.rows
        if row.origin == "measured" and (f1 := row.number("f1")) is not None
    }
    return Results([main, *(table for table in others if table.rows)], _differences(rows), _notes(rows), metrics)


def name_of(row: ParserRow) -> str:
    """Returns a measured row's name, with its layers, and its data unless they are the paper's."""
    n_layers = row.chosen.config.n_layers if row.chosen else None
    layers = "" if n_layers is None else f" ({n_layers} layer{'s' * (n_layers > 1)})"
    return f"Transformer{layers}{_suffix(row)}"


def training_of(row: ParserRow) -> str:
    """Returns a measured row's training data, in the paper's words if they are the paper's."""
    if row.data == WSJ:
        return row.training
    return row.training if row.training == "semi-supervised" else f"{row.data} only"


def _suffix(row: ParserRow) -> str:
    return "" if row.data == WSJ else f", {row.data}"


def _rows(rows: Sequence[ParserRow]) -> Iterator[Row]:
    for row in paper.TABLE_4:
        yield Row(row.name, "paper", {"training": row.training, "f1": float(row.f1)}, {"f1": 1})
    for parser in rows[:1]:  # the sentences of the test set are the same in every row
        yield _scored(f"{RIGHT_BRANCHING}{_suffix(parser)}", "none", parser.baseline.load())
    for parser in rows:
        if parser.scores:
            yield _scored(name_of(parser), training_of(parser), parser.scores.load())
        else:
            yield Row(name_of(parser), "measured", {"training": training_of(parser), "f1": Missing.FAILED})


def _scored(name: str, training: str, scores: TreeScores) -> Row:
    total = scores.total
    values: dict[str, Value] = {
        "training": training,
        "f1": total.f1,
        "f1_short": scores.short.f1 if scores.short.valid else None,
        "recall": total.recall,
        "precision": total.precision,
        "complete_match": total.complete_match,
        "sentences": total.sentences,
        "valid": total.valid,
    }
    return Row(name, "measured", values)


def _candidates(row: ParserRow) -> Iterator[Row]:
    training = training_of(row)
    for candidate in row.models:
        values: dict[str, Value] = {
            "training": training,
            "dropout": candidate.config.dropout,
            "attention_dropout": candidate.config.attention_dropout,
            "learning_rate_scale": candidate.run.settings.optimizer.learning_rate_scale,
            "f1": candidate.trees.f1 if candidate.trees else None,
            "dev_perplexity": candidate.dev.dev_perplexity,
            "train_s": candidate.run.train_s,
            "chosen": "chosen" * (candidate is row.chosen),
        }
        yield Row(candidate.cell.model, "", values, group=training)
    for name, why in row.failures.items():
        yield Row(name, "", {"training": training, "f1": Missing.FAILED, "reason": why}, group=training)


def _beams(row: ParserRow) -> Iterator[Row]:
    if row.choice:
        for size, f1 in sorted(row.choice.beams.items()):
            chosen = "chosen" * (size == row.choice.settings.beam_size)
            yield Row(training_of(row), "", {"beam_size": size, "f1": f1, "chosen": chosen})


def _repairs(row: ParserRow) -> Iterator[Row]:
    if row.parses:
        parsed, decoded = row.parses.load(), row.hypotheses.load()
        values: dict[str, Value] = {
            "repaired": parsed.repaired,
            "sentences": parsed.sentences,
            "repairs": ", ".join(f"{number} {repair}" for repair, number in parsed.repairs.items()) or "none",
            "sentences_s": decoded.sentences / decoded.seconds if decoded.seconds else 0.0,
        }
        yield Row(training_of(row), "", values)


def in_table_4(model: Measured) -> dict[str, Fact]:
    """Returns the facts of the paper's experiment for a parser, whose pair is a row of the profile.

    The paper states neither its updates nor its averaging: they are those of base, from which "all other parameters
    remained unchanged" (§6.3).
    """
    profile = wsj_profile(Path(), [Path()]).for_pair(model.cell.pair)
    recipe = profile.recipes["parser"]
    chosen = ("dropout", "attention_dropout", "learning_rate_scale")
    there = printed(recipe.training, recipe.averaging, profile.decoding, paper.facts(model.cell.pair), *chosen)
    return there | {"symbol of a word": Fact("the same for all words"), "search on the dev set": there["decoding"]}


def _differences(rows: Sequence[ParserRow]) -> list[Difference]:
    """Compares the chosen candidates with the paper's parsers."""
    entries = differences([row.chosen for row in rows if row.chosen], in_table_4)
    tried: dict[str, list[str]] = {}
    for row in rows:
        dropouts = {candidate.config.attention_dropout for candidate in row.models}
        if row.chosen and len(dropouts) == 1:
            tried.setdefault(f"{dropouts.pop():g}, the only one tried", []).append(row.chosen.cell.label)
    return entries + [
        Difference("dropout of attention weights", "chosen on section 22, not printed", here, tuple(labels))
        for here, labels in tried.items()
    ]


def _notes(rows: Sequence[ParserRow]) -> list[str]:
    chosen = [row.chosen for row in rows if row.chosen]
    notes = [
        "F1 is over the labelled constituents of all sentences of the test set, in percent, as computed by EVALB with "
        "COLLINS.prm: TOP and punctuation do not count, and ADVP equals PRT.",
        "The paper states neither the number of updates nor whether checkpoints were averaged. The differences above "
        "are from EN-DE base, of which, the paper says, all other parameters remained unchanged.",
        "Scored trees carry the gold tags, so that punctuation is ignored in both alike. Tagging accuracy is not "
        "reported.",
        "Right-branching trees are a baseline: each word begins a constituent that ends with the sentence.",
    ]
    if any(row.data != WSJ for row in rows):
        names = " and ".join(dict.fromkeys(row.data for row in rows))
        notes.append(
            f"The measured rows are on {names}, not on the paper's treebank, so they are not comparable with the "
            "printed rows."
        )
    failures = ((row, *each) for row in rows for each in row.failures.items())
    notes += [f"{name_of(row)}, {training_of(row)}: {name} failed: {why}" for row, name, why in failures]
    return [*notes, *provenance_notes(chosen)]


def said(rows: Sequence[ParserRow]) -> str:
    """States the parsers' F1 in a sentence."""
    parsed = [(training_of(row), row.scores.load().total.f1) for row in rows if row.scores]
    if not parsed:
        return page.NOTHING_RUN
    reached = " and ".join(f"{f1:.1f} after training on {name}" for name, f1 in parsed)
    return f"The parser reaches F1 {reached}, right-branching trees {rows[0].baseline.load().total.f1:.1f}."


def _drawing(tree: Tree) -> Markup:
    return Markup('<pre class="tree" tabindex="0">{}</pre>').format(drawn(tree))
