"""Judges every claim of the paper: a row each, with what its own figures say, what came out here, and a verdict.

python -m workflows.reproduce_claims
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipeline.evaluation.perplexity import LengthPerplexityFigures
from pipeline.store.artifact import JsonArtifact
from pipeline.text.lines import read_lines
from workflows import paper
from workflows.claims import layers, models, sentences
from workflows.claims.evidence import Evidence, Examined, Tokenized
from workflows.claims.judged import VERDICTS, Judged
from workflows.engine.dag import Ref, to_artifact
from workflows.tables.differences import ASPECTS, Difference, differences
from workflows.tables.table import NAME, Column, Table, columns, in_order

T = TypeVar("T")
FILE = "claims.html"
NOTES = (
    "A claim about trainings with several seeds holds or fails where a difference exceeds the noise between seeds. "
    "That of Table 3 is two standard deviations over base's seeds. Elsewhere it is the 95 % interval of the mean "
    "difference between trainings with the same seeds (Student). In Table 3, what is said to be alike holds where it "
    "differs by no more than that. With a single seed the verdict is of the difference as measured: another seed may "
    "give another.",
    "Elsewhere, what is said to be alike, or as good, holds where all of that interval is within a tenth of the "
    "perplexity, and fails where none of it is. The paper's beam holds where it is better than any other beyond noise.",
    "What was counted has no noise. What was timed is the median of several rounds, and holds for this machine.",
    "Not measurable here: the claim compares with figures that were measured on the paper's text, not on that here.",
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim and what came out."""

    section: str
    """As the paper counts, e.g. "3.2.1", or the figure."""
    text: str
    judged: Judged

    @property
    def place(self) -> str:
        """Where the paper says so."""
        return f"§{self.section}" if self.section[0].isdigit() else self.section


@dataclass(frozen=True)
class Claims:
    """The rows with everything that stands beneath them."""

    rows: list[ClaimRow]
    differences: list[Difference]
    notes: list[str]

    @property
    def metrics(self) -> dict[str, float]:
        """How many claims have each verdict, by its name in MLflow."""
        counted = Counter(row.judged.verdict for row in self.rows)
        return {f"claims: {verdict}": counted[verdict] for verdict in VERDICTS}

    @property
    def tables(self) -> list[Table]:
        """The claims, in the paper's order."""
        shown = [
            Column(NAME, "where"),
            *columns("claim", "in the paper's figures", "here"),
            *columns("seeds", spec="d"),
            *columns("verdict"),
        ]
        rows = []
        for row in self.rows:
            judged = row.judged
            values = row.place, row.text, judged.paper, judged.here, judged.seeds, judged.verdict
            rows.append(in_order(shown, *values, group=row.section))
        return [Table("Claims of the paper", shown, rows, said(self))]


class ClaimsArtifact(JsonArtifact[Claims]):
    """`claims.json`, `claims.md` and `claims.html`."""

    figures_file = "claims.json"


def said(claims: Claims) -> str:
    """Says in a sentence how many claims have which verdict."""
    counted = Counter(row.judged.verdict for row in claims.rows)
    plural = {"holds": "hold", "fails": "fail"}
    listed = [f"{counted[verdict]} {plural.get(verdict, verdict)}" for verdict in VERDICTS if counted[verdict]]
    return f"Of {len(claims.rows)} claims: {', '.join(listed)}."


def compute(evidence: Evidence, sections: Sequence[str] = ("",)) -> Claims:
    """Judges the claims of the sections that begin so; what has no evidence is not run."""
    table1, table2 = _loaded(evidence.table1), _loaded(evidence.table2)
    table3, table4 = _loaded(evidence.table3), _loaded(evidence.table4)
    judged = {
        **_of_layers(evidence),
        **models.of_table2(table2, is_of_other_text=evidence.is_of_other_text),
        **models.of_averaging(
            [(trial.evaluation.main_bleu.deciding, to_artifact(trial.measured).load()) for trial in evidence.averaging]
        ),
        **models.of_table4(table4, _lengths(evidence.trees)),
        **_of_examined(evidence.examined),
    }
    if table1 and evidence.counts:
        judged |= layers.of_table1(table1, to_artifact(evidence.counts).load())
    if table3:
        judged |= models.of_one_head(table3)
    rows = [
        ClaimRow(claim.section, claim.text, judged.get(claim.key, Judged("not run", ""))) for claim in sentences.CLAIMS
    ]
    rows += [ClaimRow(*row) for row in models.of_table3(table3)]
    rows = [row for row in rows if row.section.startswith(tuple(sections))]
    rows.sort(key=lambda row: (not row.section[0].isdigit(), [int(n) for n in row.section if n.isdigit()]))
    tables = {"Table 1": table1, "Table 2": table2, "Table 3": table3, "Table 4": table4}
    differing = {name: table.differences for name, table in tables.items() if table}
    return Claims(rows, _gathered({**differing, **_of_trials(evidence)}), list(NOTES))


def _of_trials(evidence: Evidence) -> dict[str, list[Difference]]:
    """Returns what differs from the paper in trainings that no table has, by one of each kind."""
    # Of these, both the last checkpoint and the average are measured.
    of_both = {what: aspect for what, aspect in ASPECTS.items() if what != "averaged checkpoints"}
    return {
        "averaging": differences([trial.evaluation for trial in evidence.averaging[:1]], aspects=of_both),
        "positions": differences(
            [*{trial.kind: trial.evaluation for trial in evidence.extrapolation}.values()],
            lambda _pair, row: paper.variation_experiment(row),
        )
        + [
            Difference(
                "training sentences",
                "all",
                f"those of at most {longest} tokens a side",
                (layers.SINUSOIDS, layers.LEARNED),
            )
            for longest in (to_artifact(trial.measured).load().longest_trained for trial in evidence.extrapolation[:1])
        ],
        "functions": [
            Difference("attention functions", "not printed", f"{figures.updates:,} updates of small models", ("all",))
            for figures in (to_artifact(training).load() for training in evidence.functions[:1])
        ],
    }


def _gathered(differing: Mapping[str, Sequence[Difference]]) -> list[Difference]:
    """Returns each difference once, with the names of all that have it before their cells."""
    cells: dict[tuple[str, str, str], list[str]] = {}
    for name, listed in differing.items():
        for difference in listed:
            key = difference.what, difference.paper, difference.here
            cells.setdefault(key, []).extend(f"{name}: {cell}" for cell in difference.cells)
    return [Difference(*key, tuple(labels)) for key, labels in cells.items()]


def _loaded(reference: Ref[JsonArtifact[T]] | None) -> T | None:
    """Returns what an artifact holds, if it is there."""
    return to_artifact(reference).load() if reference else None


def _lengths(tokenized: Tokenized | None) -> list[tuple[int, int]]:
    """Returns the lengths of the pairs of an evaluation set in tokens, END_ID counted."""
    from pipeline.text.segmentation import encode_lines  # loads sentencepiece, which a finished page does not need
    from pipeline.text.vocabulary import load

    if tokenized is None:
        return []
    text, vocabulary = to_artifact(tokenized.text), load(to_artifact(tokenized.vocabulary).path)
    sides = (encode_lines(vocabulary, list(read_lines(path))) for path in (text.source, text.references))
    return [(len(source), len(target)) for source, target in zip(*sides, strict=True)]


def _of_layers(evidence: Evidence) -> dict[str, Judged]:
    judged: dict[str, Judged] = {}
    counted, timed = _loaded(evidence.counted), _loaded(evidence.timed)
    if evidence.functions:
        judged |= layers.of_functions([to_artifact(training).load() for training in evidence.functions])
    if counted:
        judged |= layers.of_counted(counted)
    if counted and timed:
        judged |= layers.of_timed(counted, timed)
    if evidence.extrapolation:
        judged |= layers.of_lengths(lengths_of(evidence))
    return judged


def lengths_of(evidence: Evidence) -> list[tuple[str, int, LengthPerplexityFigures]]:
    """Returns what was measured by length: of each training, what it was, its seed and its figures."""
    return [
        (trial.kind, trial.evaluation.settings.seed, to_artifact(trial.measured).load())
        for trial in evidence.extrapolation
    ]


def _of_examined(examined: Examined | None) -> dict[str, Judged]:
    if examined is None:
        return {}
    lengths = [length for pair in _lengths(examined.dev) for length in pair]
    relations = _loaded(examined.relations)
    heads = to_artifact(examined.heads).load().heads
    return {
        **layers.of_width(to_artifact(examined.checkpoint).config.d_model, lengths),
        **models.of_heads(relations.relations if relations else (), heads),
    }
