import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.artifacts import Corpus, EncodedDataset
from pipeline.records import AveragingRecord
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import ArtifactT
from pipeline.store.store import Store
from pipeline.training.workers import Workers
from tests.support.parallel_text import set_of
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint
from tests.support.tiny_stages import Words, abridge, quote_warnings
from tests.support.tiny_training import published, train_as, with_fields
from workflows import stages
from workflows.engine.dag import Stage, Step
from workflows.engine.progress import View
from workflows.engine.runner import run

pytestmark = pytest.mark.usefixtures("ray_cluster")


def made(step: Step[ArtifactT], store: Store) -> tuple[ArtifactT, list[str]]:
    """Runs a step and returns its artifact and the warnings shown, the same in a terminal and in a file."""
    files = io.StringIO(), io.StringIO()
    (artifact,) = run([step], store, [View(Console(file=to, width=120, force_terminal=to is files[1])) for to in files])
    plain, rich = ([*map(str.strip, re.findall(r"warning: (.*)", file.getvalue()))] for file in files)
    assert plain == rich
    return artifact, plain


def test_all_processes_of_a_stage(tmp_path: Path) -> None:
    abridging, store = Stage("tiny_stages.abridge", abridge, Words), Store(tmp_path)
    first, second = abridging("first", ["alpha", "beta"]), abridging("second", ["alpha"])
    artifact, shown = made(first, store)
    expected = ["nobody has read the text", "alpha is cut to two letters", "beta is cut to two letters"]
    assert shown == artifact.manifest["warnings"] == [*expected, "a thread has written it"]
    quoting = Stage("tiny_stages.quote_warnings", quote_warnings, Words, follows_source=True)
    quoted, _ = made(quoting("quote", [first, second]), store)
    assert (quoted.folder / "words.txt").read_text().split("\n") == [
        "first, second: nobody has read the text",
        "first, second: alpha is cut to two letters",
        "first: beta is cut to two letters",
        "first, second: a thread has written it",
    ]
    assert quoted.manifest["warnings"] == []


def test_actors_that_decode(corpus: Corpus, tmp_path: Path) -> None:
    """A line too long for the model's positions is translated in parts, with a warning from the actor."""
    checkpoint = make_checkpoint(tmp_path / "learned", corpus, positions="learned", max_positions=40)
    checkpoint.write(AveragingRecord(updates=(1,)))
    line = " ".join(sentence for sentence in SENTENCES if sentence.strip())
    text = set_of(tmp_path / "test", [(line, line)])
    inputs = published(checkpoint, tmp_path / "model"), published(text, tmp_path / "text")
    step = Step("decode", stages.DECODE, (*inputs, DecodingSettings(max_extra_tokens=5)))
    hypotheses, shown = made(step, Store(tmp_path))
    (warning,) = shown
    assert re.fullmatch(r"a line of \d+ tokens is translated in \d+ parts: Two dogs run over .*\.\.\.", warning)
    assert hypotheses.manifest["warnings"] == [warning]


@pytest.mark.usefixtures("many_recoveries")
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_train(workers: int, dataset: EncodedDataset, tmp_path: Path) -> None:
    """A resumed run skips its newest checkpoint, which is damaged."""
    settings, store = with_fields(workers=workers), Store(tmp_path)
    dataset = published(dataset, tmp_path / "dataset")
    step = Step("train", stages.TRAIN, (dataset, settings))
    interrupted = store.scratch(step.name)
    interrupted.parent.mkdir(parents=True)
    train_as(Workers(), dataset, settings, interrupted, until=5)
    damaged = interrupted / "recovery" / "00000005"
    (damaged / "optimizer.safetensors").write_bytes(b"")
    trained, shown = made(step, store)
    skipped, set_aside = shown
    assert skipped.startswith(f"checkpoint {damaged} is damaged (optimizer.safetensors has 0 bytes")
    assert skipped.endswith(f"skipping {damaged}")
    assert set_aside.startswith("moved recovery/00000005 to ")
    assert trained.manifest["warnings"] == shown
