"""The DAG: fingerprints, order, what is cached."""

from pathlib import Path

from tiny_stages import Pair, Words, WriteSettings, join, write

from workflows.dag import Stage, Step, in_order, to_run

WRITE, JOIN = Stage(write, Words), Stage(join, Words)


def _joined(log: Path, left: str = "a", right: str = "b", workers: int = 1) -> Step:
    steps = [WRITE(name, WriteSettings(text=text, workers=workers)) for name, text in (("l", left), ("r", right))]
    return JOIN("join", [Pair(*steps), Pair(steps[0])], log)


def test_the_fingerprint_follows_settings_inputs_and_version(tmp_path: Path) -> None:
    """Whatever decides the output changes the name; what only says how to compute does not."""
    step = _joined(tmp_path)
    assert step.fingerprint == _joined(tmp_path).fingerprint
    assert step.fingerprint == _joined(tmp_path, workers=7).fingerprint
    assert step.fingerprint != _joined(tmp_path, right="c").fingerprint
    assert step.fingerprint != Step("join", Stage(join, Words, version=2), step.arguments).fingerprint
    assert step.fingerprint == Step("another label", JOIN, step.arguments).fingerprint


def test_steps_come_inputs_first_and_once(tmp_path: Path) -> None:
    """A step used twice is one step."""
    assert [step.label for step in in_order([_joined(tmp_path)])] == ["l", "r", "join"]


def test_only_what_is_needed_runs(tmp_path: Path) -> None:
    """A published output needs none of its inputs; a missing one asks for the missing inputs alone."""
    step = _joined(tmp_path)
    left, right = step.inputs
    left.folder(tmp_path).mkdir()
    assert [needed.label for needed in to_run([step], tmp_path)] == ["r", "join"]
    right.folder(tmp_path).mkdir()
    step.folder(tmp_path).mkdir()
    left.folder(tmp_path).rmdir()
    assert to_run([step], tmp_path) == []
