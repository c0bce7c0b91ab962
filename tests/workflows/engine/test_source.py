"""Artifacts of stages that follow the project's source are made again whenever the source changes."""

import shutil
from pathlib import Path

import pytest

from tests.support.tiny_stages import Words, WriteSettings, write
from workflows import reproduce_table2, reproduce_table3
from workflows.engine import dag
from workflows.engine.dag import PACKAGES, Stage, source_sha256

ROOT = Path(__file__).parents[3]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the project's packages."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_papers_numbers_and_templates_count_as_source(tree: Path) -> None:
    """The digest changes with a digit of the paper's numbers, a character of a report template or an added file."""
    digests = [source_sha256(ROOT), source_sha256(tree)]
    assert digests[0] == digests[1]
    paper = tree / "workflows" / "paper.py"
    paper.write_text(paper.read_text(encoding="utf-8").replace("27.3", "27.4"), encoding="utf-8")
    source_sha256.cache_clear()
    digests.append(source_sha256(tree))
    template = next(tree.rglob("*.j2"))
    template.write_text(template.read_text(encoding="utf-8") + "!", encoding="utf-8")
    source_sha256.cache_clear()
    digests.append(source_sha256(tree))
    (tree / "model" / "more.py").touch()
    source_sha256.cache_clear()
    digests.append(source_sha256(tree))
    assert len(set(digests)) == 4


def test_tables_follow_the_source_and_trainings_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the code a table is made again, but not the trainings it is made from."""
    assert reproduce_table2.TABULATE.follows_source
    assert reproduce_table3.TABULATE.follows_source
    follows, stays = (
        Stage("tiny_stages.write", write, Words, follows_source=follows_source) for follows_source in (True, False)
    )
    settings = WriteSettings(text="a")
    before = [stage("a", settings).fingerprint for stage in (follows, stays)]
    monkeypatch.setattr(dag, "source_sha256", lambda: "another")
    after = [stage("a", settings).fingerprint for stage in (follows, stays)]
    assert before[0] != after[0]
    assert before[1] == after[1]
