"""What manifests tell of a run: which stages made something, in which order, and with what pauses."""

from collections.abc import Callable
from pathlib import Path

from pipeline.store.artifact import Artifact
from workflows.history.records import dependents, spans, stages_behind


def test_all_that_something_was_made_from_is_found(publish_stage: Callable[..., Artifact], tmp_path: Path) -> None:
    """From one artifact, alone or in a list, the stages behind it are read, oldest first, and no others."""
    text = publish_stage("generate", began_s=0, seconds=5)
    clean = publish_stage("clean", text, began_s=6, seconds=1)
    run = publish_stage("train", clean, began_s=10, seconds=60, figures={"loop_s": 42.5})
    publish_stage("train other", clean, began_s=11, seconds=60)
    found = stages_behind([{"runs": (run,)}, "words"])
    assert [record.label for record in found] == ["generate", "clean", "train"]
    assert [record.ended_s - found[0].began_s for record in found] == [5, 7, 70]
    assert [record.loop_s for record in found] == [None, None, 42.5]
    assert dict(found[1].inputs) == {"generate": found[0].fingerprint}
    assert [record.label for record in dependents(found[0], found)] == ["clean", "train"]
    assert dependents(found[2], found) == []


def test_what_is_missing_or_broken_is_left_out(publish_stage: Callable[..., Artifact], tmp_path: Path) -> None:
    """An input that is not in the store, a folder without a manifest and one with half of it stop nothing."""
    text = publish_stage("generate", began_s=0, seconds=5)
    clean = publish_stage("clean", text, began_s=6, seconds=1)
    (text.folder / "manifest.json").write_text("{")
    (tmp_path / "bare").mkdir()
    assert [record.label for record in stages_behind([clean, Artifact(tmp_path / "bare")])] == ["clean"]
    assert stages_behind(None) == []


def test_long_pauses_part_the_time(publish_stage: Callable[..., Artifact]) -> None:
    """Stages with less than a minute between them are one span, however they overlap; a longer pause begins another."""
    begun = [(0, 10), (5, 1), (60, 5), (126, 4)]
    made = [publish_stage(f"stage {i}", began_s=began_s, seconds=s) for i, (began_s, s) in enumerate(begun)]
    found = spans(stages_behind(made))
    assert [span.seconds for span in found] == [65, 4]
    assert found[1].began_s - found[0].began_s == 126
