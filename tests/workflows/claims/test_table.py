"""The page of the claims: every claim in the paper's order, what was not run named so, and what differs."""

from dataclasses import replace
from pathlib import Path

from pipeline.store.artifact import Context
from pipeline.store.artifacts import Vocabulary
from pipeline.text.encoding import encoded_set
from tests.support.html_reader import Reader
from tests.support.parallel_text import set_of
from tests.support.tiny_checkpoint import make_checkpoint, make_corpus
from workflows import paper
from workflows.claims import report, sentences, table
from workflows.claims.evidence import Evidence, Tokenized
from workflows.tables.differences import Difference
from workflows.tables.table import Results, Table
from workflows.tables.table2 import Table2Artifact


def test_without_evidence_nothing_is_judged() -> None:
    """Each claim has a row, each ordering one for each figure; the paper's own arithmetic stands there all the same."""
    claims = table.compute(Evidence())
    assert {row.judged.verdict for row in claims.rows} == {"not run"}
    assert len(claims.rows) == len(sentences.CLAIMS) + 2 * len(paper.ORDERINGS)
    assert "yes: 28.4 − 26.36 = +2.04" in [row.judged.paper for row in claims.rows]
    sections = list(dict.fromkeys(row.section for row in claims.rows))
    assert sections == ["3.2.1", "3.2.2", "3.5", "4", "5.4", "6.1", "6.2", "6.3", "figure 3", "figure 4", "figure 5"]
    assert {row.section for row in table.compute(Evidence(), ["3", "6.2"]).rows} == {"3.2.1", "3.2.2", "3.5", "6.2"}


def test_lengths_are_in_tokens(tmp_path: Path) -> None:
    """Of each pair of an evaluation set: as many ids as the vocabulary makes of its sides, with END_ID."""
    text = set_of(tmp_path / "dev", [("The dog .", "A dog ."), ("", "Two men run .")])
    checkpoint = make_checkpoint(tmp_path / "model", make_corpus(tmp_path / "corpus"))
    with encoded_set(Context(tmp_path), text, checkpoint.vocabulary) as split:
        lengths = [*zip(split.source_lengths.tolist(), split.target_lengths.tolist(), strict=True)]
    assert table._lengths(Tokenized(text, Vocabulary(checkpoint.folder))) == lengths
    assert lengths[1][0] == 1


def test_the_page(tmp_path: Path) -> None:
    """It says how many claims have which verdict, what differs in the tables that were judged, and the warnings."""
    (tmp_path / "table").mkdir()
    (tmp_path / "page").mkdir()
    artifact = Table2Artifact(tmp_path / "table")
    differs = Difference("updates", "100,000", "1,100", ("EN-DE base",))
    artifact.write(Results([Table("Table 2", [], [])], [differs], [], {}))
    context = Context(tmp_path / "page", warnings=["read en-de: train.en is not the <published> file"])
    judged = report.judge(context, Evidence(table2=artifact))
    text = Reader((tmp_path / "page" / "claims.html").read_text()).text
    assert f"Of {len(judged.load().rows)} claims: {len(judged.load().rows)} not run." in text
    assert "Table 2: EN-DE base" in text
    assert context.warnings[0] in text
    first = judged.load().rows[0]
    holds = replace(judged.load(), rows=[replace(first, judged=replace(first.judged, verdict="holds"))])
    assert table.said(holds) == "Of 1 claims: 1 hold."
