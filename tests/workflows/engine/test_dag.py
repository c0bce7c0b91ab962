"""The DAG: fingerprints, order of steps, and caching."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.store.artifact import Artifact, publish
from pipeline.store.store import Store
from tests.support.tiny_stages import JOIN, WRITE, Pair, Words, WriteSettings, joined
from workflows.engine.dag import Step, inputs_now
from workflows.engine.plan import to_run


def test_the_fingerprint_depends_on_settings_inputs_and_version(tmp_path: Path) -> None:
    """Everything that determines the output changes the fingerprint. Settings of how to compute do not."""
    step = joined(tmp_path)
    assert step.fingerprint == joined(tmp_path).fingerprint
    assert step.fingerprint == joined(tmp_path, workers=7).fingerprint
    assert step.fingerprint != joined(tmp_path, right="c").fingerprint
    assert step.fingerprint != Step("join", replace(JOIN, version=2), step.arguments).fingerprint
    assert step.fingerprint == Step("another label", JOIN, step.arguments).fingerprint


def _publish(step: Step[Artifact], store: Store, text: str | None = None, **changes: Any) -> Artifact:
    def make(folder: Path) -> Artifact:
        (folder / "words.txt").write_text(text or step.label)
        return Words(folder)

    settings = [argument.model_dump(mode="json") for argument in step.arguments if isinstance(argument, Settings)]
    inputs = inputs_now(step, store.manifest)
    manifest = {"fingerprint": step.fingerprint, "settings": settings, "inputs": inputs, "label": step.label}
    return publish(store.folder(step.name), make, manifest | changes)


def test_damaged_artifacts_count_as_missing(tmp_path: Path) -> None:
    """A damaged output is rebuilt from its intact inputs. Damage is reported, and absence is not damage."""
    step = joined(tmp_path)
    left, right = step.inputs
    for made in (left, right, step):
        _publish(made, Store(tmp_path))
    (Store(tmp_path).folder(step.name) / "words.txt").write_text("joim")
    (Store(tmp_path).folder(left.name) / "words.txt").unlink()
    of_step = "damaged: words.txt does not match its sha256 in manifest.json"
    damages = {left: "damaged: words.txt is missing", step: of_step}
    assert to_run([step], Store(tmp_path)) == damages
    shutil.rmtree(Store(tmp_path).folder(right.name))
    assert to_run([step], Store(tmp_path)) == {left: damages[left], right: "", step: damages[step]}
    assert Store(tmp_path).folder(step.name).exists()


def test_what_rests_on_another_generation_of_an_input_is_stale(tmp_path: Path) -> None:
    """At any depth, by content: text that is rebuilt as it was changes nothing. Older manifests do not know."""
    store = Store(tmp_path)
    text = WRITE("text", WriteSettings(text="a"))
    run = replace(JOIN, trains=True)("train", [Pair(text)], tmp_path)
    model, other = (JOIN(label, [Pair(run)], tmp_path / label) for label in ("average", "cost"))
    scores = JOIN("score", [Pair(model)], tmp_path)
    table = JOIN("table", [Pair(scores, other)], tmp_path)
    stale = dict.fromkeys([model, other], "built from another generation of train")
    resting = {scores: "another average", table: "another score"}

    def again(step: Step[Words], *content: str, **changes: Any) -> dict[Step[Artifact], str]:
        if store.find(step.name):
            shutil.rmtree(store.folder(step.name))
        _publish(step, store, *content, **changes)
        return to_run([table], store)

    for step in (text, run, model, other, scores, table):
        again(step)
    assert again(text, libraries="of another time") == {}
    assert to_run([table], store, [model]) == {model: "forced"} | resting
    assert again(run, "other weights") == stale | resting
    assert again(model) == {other: stale[other], table: "another cost"}
    shutil.rmtree(store.folder(run.name))
    assert to_run([table], store) == {}
    shutil.rmtree(store.folder(other.name))
    assert to_run([other, table], store) == dict.fromkeys([run, other], "") | {model: "another train"} | resting
    older = {"inputs": [{"label": "train", "fingerprint": run.fingerprint}]}
    for step, changes in ((run, {}), (model, older), (other, {}), (scores, {}), (table, {})):
        again(step, **changes)
    assert again(run, "weights of a third time") == {other: stale[other], table: "another cost"}


def test_a_users_folder_that_rests_on_another_generation_stays(tmp_path: Path) -> None:
    given = WRITE("given", WriteSettings(text="a"))
    step = Step("join", JOIN, ([Pair(_publish(given, Store(tmp_path)))], tmp_path), out=tmp_path / "out")
    _publish(step, Store(tmp_path))
    assert to_run([step], Store(tmp_path)) == {}
    shutil.rmtree(Store(tmp_path).folder(given.name))
    _publish(given, Store(tmp_path), "others")
    with pytest.raises(UserError, match=r"/out was built from another generation of given; move it elsewhere or"):
        to_run([step], Store(tmp_path))


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
