"""The plan for other programs: every step with its state and inputs, and a flowchart of the same DAG."""

import json
import re
from pathlib import Path
from shutil import rmtree

import pytest

from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.tiny_dag import make, table_of
from workflows.engine.plan import to_run
from workflows.planned import as_mermaid, planned

H100 = ["--gpu", "h100"]


def test_a_step_runs_is_cached_or_is_not_needed(tmp_path: Path) -> None:
    """The text is removed after it was used, and another seed needs another run and all after it, but no new text."""
    store, other, target = Store(tmp_path), table_of(1), table_of(2)
    make(store, other)
    text, train, *rest = planned([target], store, to_run([target], store))
    assert (text["label"], text["state"], text["why"], text["inputs"]) == ("clean en-de", "cached", "", [])
    assert (train["state"], train["why"].partition("; ")[2]) == ("to run", "built with seed 1 (here 2)")
    assert (train["stage"], train["inputs"]) == ("training.train", ["clean en-de"])
    assert [step["state"] for step in rest] == ["to run"] * 3
    rmtree(store.folder(f"cleaning-{text['fingerprint']}"))
    drawn = as_mermaid(planned([other], store, to_run([other], store))).splitlines()
    assert drawn[:3] == ["flowchart TD", '    s1["clean en-de"]', "    style s1 opacity:0.4"]
    assert drawn[-3:] == ['    s5["table 2"]', "    s4 --> s5", "    style s5 stroke-dasharray:4 3"]


@pytest.mark.parametrize("typed", ["table2 --profile wmt14 --choose-decoding", "table3", "table4"])
def test_json_is_alone_on_standard_output(typed: str, tmp_path: Path, command_line: CommandLine) -> None:
    """Every step, whose label is no other's, with its inputs before it, and the forecast; nothing is written."""
    options = [*typed.split(), "--plan", "--store", str(tmp_path / "new")]
    plan = json.loads(command_line.here("workflows.cli", *options, "--json", *H100).stdout)
    steps = {step["label"]: step["inputs"] for step in plan["steps"]}
    assert len(steps) == len({step["fingerprint"] for step in plan["steps"]}) == len(plan["steps"]) > 20
    assert all(steps.keys() - [*steps][number:] >= {*inputs} for number, inputs in enumerate(steps.values()))
    assert plan["command"] == f"aiayn {' '.join([*options, '--json', *H100])}"
    text = command_line.here("workflows.cli", *options, *H100).stdout
    assert f"{len(steps)} stages to run" in text
    for run in plan["forecast"]["runs"]:
        assert re.search(rf"^{run['name']}\b.* {run['parameters'] / 1e6:.1f} M ", text, re.MULTILINE)
    last = next(label for label in steps if label.startswith("train"))
    until = json.loads(command_line.here("workflows.cli", *options, "--json", "--until", last).stdout)
    assert (until["steps"][-1]["label"], until["forecast"]) == (last, None)
    assert not (tmp_path / "new").exists()
