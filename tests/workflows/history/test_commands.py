"""The commands that repeat stages do so: those that are quick are run."""

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from tests.support.command_line import CommandLine
from workflows.history.commands import Invocation, repeat_commands
from workflows.history.records import stages_behind
from workflows.profiles import load_profile

CORPUS = {
    "corpus.json": json.dumps(
        {"source": "en", "target": "de", "splits": {"test": [1]}, "collections": [], "report": {}}
    ),
    "test/00000.en": "A house.\n",
    "test/00000.de": "Ein Haus.\n",
}
INVOCATION = Invocation(
    command="python -m workflows.reproduce_table2 --set 'decoding.beam_size=8'",
    shared="--set decoding.beam_size=8",
    store="my runs",
)


@pytest.fixture
def made(publish_stage: Callable[..., Artifact]) -> dict[str, str]:
    """The command for each stage of a small run, by label."""
    text = publish_stage("generate", began_s=0, seconds=1, stage="embedded.generate", files=CORPUS)
    clean = publish_stage("clean", text, began_s=2, seconds=1, stage="cleaning.clean", files=CORPUS)
    dataset = json.dumps({"vocabulary_size": 1500, "languages": ["en", "de"]})
    encoded = publish_stage(
        "encode", clean, began_s=4, seconds=1, stage="encoding.encode", files={"dataset.json": dataset}
    )
    usual = load_profile(None, overrides=["vocabulary.size=1500"]).for_pair("en-de").recipes["base"].training
    changed = usual.model_copy(
        update={"seed": 7, "model": usual.model.__class__(**{**usual.model.__dict__, "d_ff": 96})}
    )
    run = publish_stage(
        "train",
        encoded,
        began_s=6,
        seconds=9,
        stage="training.train",
        settings=[changed.model_dump(mode="json")],
    )
    model = publish_stage("average", run, began_s=16, seconds=1, stage="averaging.average", settings=[{"last": 3}])
    decoded = publish_stage(
        "decode",
        model,
        clean,
        began_s=18,
        seconds=1,
        stage="decoding.decode",
        settings=[{"beam_size": 8, "length_penalty": 0.6, "max_extra_tokens": 50, "precision": "auto"}],
        files={"decoding.json": json.dumps({"test_sets": {"test": {}}}), "test.de": "Ein Haus.\n"},
    )
    score = publish_stage(
        "score",
        decoded,
        clean,
        began_s=20,
        seconds=1,
        stage="scoring.score",
        files={"scores.json": json.dumps({"test_sets": {"test": {}}})},
    )
    perplexity = publish_stage("perplexity", model, encoded, began_s=20, seconds=1, stage="perplexity.measure")
    records = stages_behind([score, perplexity])
    commands = repeat_commands(records, INVOCATION, "tabulating-0")
    return {record.label: commands[record.fingerprint] for record in records}


def test_each_stage_has_a_command(made: dict[str, str]) -> None:
    """Text is prepared, a training names what differs, and what has no command of its own is removed and made again."""
    prepare = "aiayn prepare --set decoding.beam_size=8 --pair en-de --out prepared-again"
    assert [made[label] for label in ("generate", "clean", "encode")] == [prepare] * 3
    train = shlex.split(made["train"])
    assert train[:2] == ["aiayn", "train"]
    assert train[2].startswith("my runs/store/encoding-")
    assert train[4:] == [
        "training-again",
        "--set",
        "recipes.base.training.model.d_ff=96",
        "--set",
        "recipes.base.training.seed=7",
    ]
    assert made["average"].endswith("--out model-again --last 3")
    assert " --beam-size 8 < 'my runs'/store/cleaning-" in made["decode"]
    assert made["decode"].endswith("/test/00000.en > test.de")
    removed, again = made["perplexity"].split(" && ")
    assert [Path(word).name.partition("-")[0] for word in shlex.split(removed)[2:]] == ["perplexity", "tabulating"]
    assert again == f"{INVOCATION.command} --store 'my runs'"


def test_the_settings_named_give_the_same_training(made: dict[str, str]) -> None:
    """`aiayn train` with these options has the settings of the manifest."""
    words = shlex.split(made["train"])
    changes = [word for before, word in pairwise(words) if before == "--set"]
    profile = load_profile(None, overrides=["vocabulary.size=1500", *changes]).for_pair("en-de")
    training: TrainingSettings = profile.recipes["base"].training
    assert (training.seed, training.model.d_ff, training.model.d_model) == (7, 96, 128)


def test_the_score_is_repeated(
    made: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command runs where the workflow was called, and scores the translations that the store holds."""
    (tmp_path / "my runs").mkdir()
    (tmp_path / "store").rename(tmp_path / "my runs" / "store")
    monkeypatch.chdir(tmp_path)
    done = CommandLine(capsys, monkeypatch).here("workflows.cli", *shlex.split(made["score"])[1:])
    assert done.returncode == 0
    assert "sacreBLEU" in done.stdout


def test_no_training_is_removed_to_repeat_what_is_before_it(publish_stage: Callable[..., Artifact]) -> None:
    """A stage without a command of its own that a training depends on is made again in another store."""
    trees = publish_stage("read trees", began_s=0, seconds=1, stage="treebank.read")
    run = publish_stage("train", trees, began_s=2, seconds=1, stage="training.train")
    records = stages_behind(run)
    commands = repeat_commands(records, INVOCATION, "tabulating-0")
    assert {commands[record.fingerprint] for record in records} == {f"{INVOCATION.command} --store runs-again"}
