"""pipeline.parts: preparation continues after a kill, and ends in the same files."""

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pipeline.context import Context
from pipeline.corpora.embedded import EmbeddedSettings, generate
from pipeline.errors import UserError
from pipeline.parts import PARTS, continuing
from pipeline.settings import CleaningSettings, EncodingSettings
from pipeline.store.artifact import Artifact, build_folder, publish
from pipeline.text.encoding import encode
from pipeline.text.vocabulary import learn
from tests.support.parallel_text import corpus_of, set_of
from tests.support.tiny_text import every_character

TEXT = EmbeddedSettings(train_pairs=500, shard_pairs=100).text("train")
DONE = 2
"""Tasks that have finished when the process is killed."""


@pytest.fixture(params=["corpus", "dataset"])
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Context], Artifact]:
    if request.param == "corpus":
        return lambda context: generate(context, TEXT, CleaningSettings())
    pairs = [(f"{i} dogs", f"{i} Hunde") for i in range(90)]
    corpus, dev = corpus_of(tmp_path / "text", pairs, shard_pairs=20), set_of(tmp_path / "dev", pairs)
    (tmp_path / "vocabulary").mkdir()
    vocabulary = learn(Context(tmp_path / "vocabulary"), corpus, every_character(30))
    return lambda context: encode(context, corpus, dev, vocabulary, EncodingSettings())


def test_only_the_tasks_that_are_left_run_again(build: Callable[[Context], Artifact], tmp_path: Path) -> None:
    """Also where a finished one's file is damaged. Files of other work and records are not published."""
    ran: list[Any] = []

    def publish_as(name: str, identity: str = "same", dies: bool = False) -> dict[str, Any]:
        def map_noting(function: Callable[..., Any], calls: Any) -> Any:
            for folder, names, write, *rest in islice(calls, DONE if dies else None):
                yield function(folder, names, lambda *given: ran.append(names) or write(*given), *rest)  # noqa: B023
            if dies:
                os._exit(9)

        ran.clear()
        made = continuing(lambda folder: build(Context(folder, map=map_noting)), identity)
        return publish(tmp_path / name, made, {}, resume=True).manifest["files"]

    whole = publish_as("whole")
    n_tasks = len(ran)
    assert n_tasks == 5 + ("joint.model" in whole)  # with the dev set
    if not (child := os.fork()):
        publish_as("killed", dies=True)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = build_folder(tmp_path / "killed")
    assert len([*left.glob(f"{PARTS}/*.json")]) == DONE
    first = next(path for path in sorted(left.rglob("*0000.*")) if PARTS not in path.parts)
    first.write_bytes(first.read_bytes()[:-1] + b"x")
    assert publish_as("killed") == whole
    assert len(ran) == n_tasks - DONE + 1
    killed, whole_names = ({path.name for path in (tmp_path / name).iterdir()} for name in ("killed", "whole"))
    assert killed == whole_names
    left = build_folder(tmp_path / "other")
    (left / PARTS).mkdir(parents=True)
    (left / PARTS / "identity").write_text("same")
    (left / "stray").write_text("of other settings")
    assert publish_as("other", "other") == whole


def test_an_error_of_the_user_leaves_what_was_finished(tmp_path: Path) -> None:
    def build(folder: Path) -> Artifact:
        for record in records:
            (folder / PARTS / record).write_text("{}")
        raise UserError("the disk is full; free some space")

    written = set()
    for records in ([], ["train.json"], ["train.json"]):
        with pytest.raises(UserError, match="full"):
            publish(tmp_path / "a", continuing(build, ""), {}, resume=True)
        assert [path.name for path in tmp_path.rglob("*.json")] == records
        assert any(tmp_path.iterdir()) == bool(records)
        written |= {path.stat().st_mtime_ns for path in tmp_path.rglob("identity")}
    assert len(written) == 1  # a kill while it is written again would lose all
