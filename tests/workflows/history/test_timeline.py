"""The drawing of a run's stages: each bar where its times are, what it waited for, and pauses cut out."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from pipeline.store.artifact import Artifact
from workflows.history.records import StageRecord, stages_behind
from workflows.history.timeline import CUT_PERCENT, MOST_BARS, described, last_input, table, timeline, waited_s


@pytest.fixture
def run(publish_stage: Callable[..., Artifact]) -> list[StageRecord]:
    """Text from 0 to 20 s, two trainings that wait for it, of which one also waits for a CPU, and a score."""
    text = publish_stage("generate <b>", began_s=0, seconds=20)
    base = publish_stage("train base", text, began_s=20, seconds=40, stage="training.train", figures={"loop_s": 30.0})
    big = publish_stage("train big", text, began_s=30, seconds=70, stage="training.train")
    score = publish_stage("score", base, big, began_s=100, seconds=0)
    return stages_behind([score])


def bars(svg: str) -> dict[str, list[tuple[str, float, float]]]:
    """Returns kind, beginning and end in percent of the bars of each stage."""
    found = {}
    for group in ElementTree.fromstring(svg).iter("g"):
        label = "".join(group.findall("text")[0].itertext()).rpartition(" ")[0]
        rects = [
            (rect.get("class", ""), *(float(rect.get(at, "")[:-1]) for at in ("x", "width")))
            for rect in group.iter("rect")
        ]
        found[re.sub(r" [\d.]+$| \d+ min.*", "", label)] = [(kind, x, x + width) for kind, x, width in rects]
    return found


def test_bars_stand_where_their_times_are(run: list[StageRecord]) -> None:
    """Of 100 s, one percent is one second; the part of a training outside its loop is pale."""
    drawn = bars(timeline(run))
    assert drawn["generate <b>"] == [("other", 0, 20)]
    assert drawn["train base"] == [("starting", 20, 60), ("training", 30, 60)]
    assert drawn["train big"] == [("training", 30, 100)]
    (kind, begin, end) = drawn["score"][0]
    assert (kind, begin) == ("other", 100)
    assert end > begin  # even a stage of no time is seen


def test_what_each_waited_for_is_told(run: list[StageRecord]) -> None:
    """The input that ended last, and the time since then; a line leads from it, and the text says it."""
    known = {record.fingerprint: record for record in run}
    text, base, big, score = run
    needed = last_input(score, known)
    assert needed is big
    assert last_input(text, known) is None
    assert [waited_s(record, known) for record in run] == [0, 0, 10, 0]
    assert described(big, known) == (
        "train big: 1 min 10 s, began 30 s after the first; its last input was generate <b>, 10 s before"
    )
    assert described(base, known).endswith("10 s of it waiting for workers, starting and ending")
    svg = timeline(run)
    assert described(big, known).replace("<b>", "&lt;b&gt;") in svg
    waits = re.findall(r'class="wait" x1="([\d.]+)%" x2="([\d.]+)%"', svg)
    assert ("20.00", "30.00") in waits
    columns, rows = table(run)
    assert columns[-3:] == ("last_input", "seconds_after_it", "loop_seconds")
    assert rows[2][-3:] == ("generate <b>", 10, None)


def test_a_pause_between_runs_is_cut_out(publish_stage: Callable[..., Artifact]) -> None:
    """What an earlier run made stands on the left; the pause is as narrow as it is said to be, and named."""
    text = publish_stage("generate", began_s=0, seconds=50)
    score = publish_stage("score", text, began_s=7250, seconds=50)
    svg = timeline(stages_behind(score))
    half = (100 - CUT_PERCENT) / 2
    drawn = bars(svg)
    assert drawn["generate"] == [("other", 0, pytest.approx(half, abs=0.02))]
    assert drawn["score"] == [("other", pytest.approx(100 - half, abs=0.02), pytest.approx(100, abs=0.02))]
    assert "a pause of 2 h 00 min" in svg
    known = {record.fingerprint: record for record in stages_behind(score)}
    assert all(waited_s(record, known) == 0 for record in known.values())


def test_only_the_longest_of_many_are_drawn(publish_stage: Callable[..., Artifact]) -> None:
    """The table has all of them."""
    made = [publish_stage(f"stage {i}", began_s=i, seconds=1 + (i % 7)) for i in range(MOST_BARS + 9)]
    records = stages_behind(made)
    svg = timeline(records)
    assert len(re.findall("<g>", svg)) == MOST_BARS
    assert f"the {MOST_BARS} longest of {MOST_BARS + 9} stages" in svg
    assert len(table(records)[1]) == MOST_BARS + 9
    assert timeline([]) == ""
