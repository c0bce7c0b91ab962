"""Judges every claim of the paper: a row each, with what its own figures say, what came out here, and a verdict.

python -m workflows.reproduce_claims
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.store.artifact import JsonArtifact
from pipeline.text.encoding import shard_lengths
from workflows.claims import layers, models, sentences
from workflows.claims.evidence import Evidence
from workflows.claims.judged import VERDICTS, Judged
from workflows.engine.dag import Ref, to_artifact
from workflows.tables.differences import Difference
from workflows.tables.text_table import Column, Line, TextTable, numbers, words

NOTES = (
    "A claim about trainings holds or fails where a difference exceeds the noise between seeds: that of Table 3 is two "
    "standard deviations over base's seeds, and elsewhere the 95 % interval of the mean difference between trainings "
    "with the same seeds (Student). What is said to be alike holds where it differs by no more than that.",
    "What was counted has no noise. What was timed is the median of several rounds, and holds for this machine.",
    "Not measurable here: the claim compares with figures of the paper's text, and the text here is another.",
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim and what came out."""

    section: str
    """As the paper counts, e.g. "3.2.1", or the figure."""
    text: str
    judged: Judged

    def texts(self) -> list[str]:
        """Returns the texts to show: where, the claim, the paper's figures, those here, seeds, the verdict."""
        judged = self.judged
        seeds = "" if judged.seeds is None else str(judged.seeds)
        return [self.place, self.text, judged.paper, judged.here, seeds, judged.verdict]

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

    def figures(self) -> dict[str, float]:
        """Returns how many claims have each verdict, by its name in MLflow."""
        counted = Counter(row.judged.verdict for row in self.rows)
        return {f"claims: {verdict}": counted[verdict] for verdict in VERDICTS}

    def shown(self) -> list[TextTable]:
        """Returns the table of claims, in the paper's order."""
        columns = [*words("where", "claim", "in the paper's figures", "here"), *numbers("seeds"), Column("verdict")]
        sections = ["", *(row.section for row in self.rows)]
        lines = [
            Line(row.texts(), begins=row.section != before) for row, before in zip(self.rows, sections, strict=False)
        ]
        return [TextTable("Claims of the paper", columns, lines, said(self))]


FILE = "claims.html"


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
    """Judges the claims of the sections that begin so; one whose evidence was left out is not run."""
    judged = {**_of_layers(evidence), **_of_models(evidence)}
    rows = [
        ClaimRow(claim.section, claim.text, judged.get(claim.key, Judged("not run", ""))) for claim in sentences.CLAIMS
    ]
    table3 = to_artifact(evidence.table3).load() if evidence.table3 else None
    rows += [ClaimRow(*row) for row in models.of_table3(table3)]
    rows = [row for row in rows if row.section.startswith(tuple(sections))]
    rows.sort(key=lambda row: (not row.section[0].isdigit(), [int(n) for n in row.section if n.isdigit()]))
    return Claims(rows, _differences(evidence), list(NOTES))


def _differences(evidence: Evidence) -> list[Difference]:
    """Returns what differs from the paper in the tables that are judged, each with its table."""
    tables: dict[int, Ref[JsonArtifact[Any]] | None] = {
        1: evidence.table1,
        2: evidence.table2,
        3: evidence.table3,
        4: evidence.table4,
    }
    return [
        replace(difference, cells=tuple(f"Table {number}: {cell}" for cell in difference.cells))
        for number, table in tables.items()
        if table
        for difference in to_artifact(table).load().differences
    ]


def _of_layers(evidence: Evidence) -> Mapping[str, Judged]:
    judged: dict[str, Judged] = {}
    if evidence.functions:
        judged |= layers.of_functions([to_artifact(training).load() for training in evidence.functions])
    if evidence.counted:
        judged |= layers.of_counted(to_artifact(evidence.counted).load())
    if evidence.counted and evidence.timed:
        counted, timed = to_artifact(evidence.counted).load(), to_artifact(evidence.timed).load()
        judged |= layers.of_timed(counted, timed)
    if evidence.table1 and evidence.counts:
        judged |= layers.of_table1(to_artifact(evidence.table1).load(), to_artifact(evidence.counts).load())
    if evidence.extrapolation:
        measured = [(one.what, one.seed, to_artifact(one.perplexity).load()) for one in evidence.extrapolation]
        judged |= layers.of_lengths(measured)
    if examined := evidence.examined:
        width = to_artifact(examined.checkpoint).config.d_model
        lengths = [side for shard in shard_lengths(to_artifact(examined.dataset), "dev") for side in shard]
        judged |= layers.of_width(width, [int(length) for side in lengths for length in side])
    return judged


def _of_models(evidence: Evidence) -> Mapping[str, Judged]:
    lengths = [
        pair
        for source, target in (shard_lengths(to_artifact(evidence.trees), "test") if evidence.trees else ())
        for pair in zip(source.tolist(), target.tolist(), strict=True)
    ]
    averaging = [
        (to_artifact(one.last).load().test_sets["dev"].paper_bleu, to_artifact(one.choice).load())
        for one in evidence.averaging
    ]
    judged = {
        **models.of_table2(to_artifact(evidence.table2).load() if evidence.table2 else None),
        **models.of_averaging(averaging),
        **models.of_table4(to_artifact(evidence.table4).load() if evidence.table4 else None, lengths),
    }
    if evidence.table3:
        judged |= models.of_one_head(to_artifact(evidence.table3).load())
    if examined := evidence.examined:
        relations = to_artifact(examined.relations).load().relations if examined.relations else ()
        judged |= models.of_heads(relations, to_artifact(examined.heads).load().heads)
    return judged
