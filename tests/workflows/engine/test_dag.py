"""The DAG: fingerprints, order of steps, and caching."""

import shutil
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.store.artifact import Artifact, publish
from pipeline.store.store import Store
from tests.support.tiny_stages import Pair, Words, WriteSettings, join, write
from workflows import reproduce_table2, reproduce_table3
from workflows.engine import dag
from workflows.engine.dag import Stage, Step, to_run

WRITE, JOIN = Stage("tiny_stages.write", write, Words), Stage("tiny_stages.join", join, Words)


def _joined(log: Path, left: str = "a", right: str = "b", workers: int = 1) -> Step[Words]:
    steps = [WRITE(name, WriteSettings(text=text, workers=workers)) for name, text in (("l", left), ("r", right))]
    return JOIN("join", [Pair(*steps), Pair(steps[0])], log)


def test_the_fingerprint_depends_on_settings_inputs_and_version(tmp_path: Path) -> None:
    """Everything that determines the output changes the fingerprint. Settings of how to compute do not."""
    step = _joined(tmp_path)
    assert step.fingerprint == _joined(tmp_path).fingerprint
    assert step.fingerprint == _joined(tmp_path, workers=7).fingerprint
    assert step.fingerprint != _joined(tmp_path, right="c").fingerprint
    assert (
        step.fingerprint != Step("join", Stage("tiny_stages.join", join, Words, version=2), step.arguments).fingerprint
    )
    assert step.fingerprint == Step("another label", JOIN, step.arguments).fingerprint


def _publish(step: Step[Artifact], store: Store) -> Artifact:
    def make(folder: Path) -> Artifact:
        (folder / "words.txt").write_text(step.label)
        return Words(folder)

    settings = [argument.model_dump(mode="json") for argument in step.arguments if isinstance(argument, Settings)]
    return publish(store.folder(step.name), make, {"fingerprint": step.fingerprint, "settings": settings})


def test_only_needed_steps_run(tmp_path: Path) -> None:
    """A published output needs no inputs. A missing output needs only its missing inputs."""
    step = _joined(tmp_path)
    left, right = step.inputs
    _publish(left, Store(tmp_path))
    assert [needed.label for needed in to_run([step], Store(tmp_path))] == ["r", "join"]
    _publish(right, Store(tmp_path))
    _publish(step, Store(tmp_path))
    shutil.rmtree(Store(tmp_path).folder(left.name))
    assert to_run([step], Store(tmp_path)) == {}


def test_damaged_artifacts_count_as_missing(tmp_path: Path) -> None:
    """A damaged output is rebuilt from its intact inputs. Damage is reported, and absence is not damage."""
    step = _joined(tmp_path)
    left, right = step.inputs
    for made in (left, right, step):
        _publish(made, Store(tmp_path))
    (Store(tmp_path).folder(step.name) / "words.txt").write_text("joim")
    (Store(tmp_path).folder(left.name) / "words.txt").unlink()
    damages = {left: "words.txt is missing", step: "words.txt does not match its sha256 in manifest.json"}
    assert to_run([step], Store(tmp_path)) == damages
    shutil.rmtree(Store(tmp_path).folder(right.name))
    assert to_run([step], Store(tmp_path)) == {left: damages[left], right: "", step: damages[step]}
    assert Store(tmp_path).folder(step.name).exists()


def test_damage_in_a_users_own_folder_is_reported_in_one_line(tmp_path: Path) -> None:
    """A damaged `out` or input of a single stage is neither used nor removed. The message has the remedy."""
    given = _publish(WRITE("given", WriteSettings(text="a")), Store(tmp_path))
    step = Step("join", JOIN, ([Pair(Words(given.folder))], tmp_path / "log"), out=tmp_path / "out")
    assert to_run([step], Store(tmp_path)) == {step: ""}
    _publish(step, Store(tmp_path))
    assert to_run([step], Store(tmp_path)) == {}
    words = Store(tmp_path).folder(step.name) / "words.txt"
    words.write_text("")
    with pytest.raises(UserError, match=r"/out is damaged: words.txt has 0 bytes, not the 4 .*; move it elsewhere"):
        to_run([step], Store(tmp_path))
    (given.folder / "words.txt").write_text("G")
    with pytest.raises(UserError, match=r"tiny_stages-.* is damaged: words.txt has 1 bytes, .*rebuild it$"):
        to_run([step], Store(tmp_path))
    assert words.exists()


def test_a_folder_that_was_made_otherwise_says_how(tmp_path: Path) -> None:
    """With other settings or text. A user's own folder is not called damaged."""
    text, other = (_publish(WRITE("given", WriteSettings(text=text)), Store(tmp_path)) for text in "ab")

    def step(letter: str, words: Artifact = text) -> Step[Words]:
        return Step("write", WRITE, (WriteSettings(text=letter), words), out=tmp_path / "out")

    _publish(step("a"), Store(tmp_path))
    assert to_run([step("a")], Store(tmp_path)) == {}
    with pytest.raises(UserError, match=r"/out was built with text a \(here b\); move it elsewhere"):
        to_run([step("b")], Store(tmp_path))
    with pytest.raises(UserError, match=r"/out was built with other text or by another version; move it elsewhere"):
        to_run([step("a", other)], Store(tmp_path))
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"/out was not created by this command; choose another folder"):
        to_run([step("a")], Store(tmp_path))
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


def test_tables_follow_the_source_and_trainings_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the source, a table is rebuilt, but not its training runs."""
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
