"""Reasons for reruns, from real artifacts in a store, and the plan that lists them, also for other programs."""

import io
import json
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from rich.console import Console

from pipeline.errors import UserError
from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.tiny_dag import make, run_table, table_of
from tests.support.tiny_stages import Pair, Words, WriteSettings, join, write
from workflows.engine.dag import Stage, Step, in_order
from workflows.engine.plan import Reason, as_mermaid, grouped, planned, print_plan, reasons, steps_of, to_run
from workflows.engine.runner import run
from workflows.runs import artifacts_of

WRITE, JOIN = Stage("tiny_write.write", write, Words), Stage("tiny_join.join", join, Words)


def _joined(store: Store, left: str, right: str, join_stage: Stage[Words] = JOIN) -> Step[Words]:
    steps = [WRITE(name, WriteSettings(text=text)) for name, text in (("left", left), ("right", right))]
    return join_stage("join", [Pair(*steps)], store.root / "log")


@pytest.fixture(scope="module")
def store(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store in which `_joined("a", "b")` was built, and before it `_joined("a", "c")`."""
    store = Store(tmp_path_factory.mktemp("reasons"))
    for right in ("c", "b"):
        run([_joined(store, "a", right)], store)
    return store


def _why(target: Step[Words], store: Store) -> dict[str, Reason]:
    return {step.label: reason for step, reason in reasons(to_run([target], store), store).items()}


def test_a_changed_setting_is_named_with_both_values(store: Store) -> None:
    """The nearest artifact is compared, the newest of two. Consequences are not causes."""
    why = _why(_joined(store, "a", "d"), store)
    assert why == {"right": Reason("built with text b (here d)"), "join": Reason("another right", is_root=False)}
    steps = to_run([_joined(store, "a", "d")], store)
    assert grouped(reasons(steps, store)) == ["right again: built with text b (here d)"]


def test_other_experiments_and_a_run_s_own_checkpoints(tmp_path: Path) -> None:
    """Only artifacts of earlier runs of the same table and profile are compared. An interrupted run continues."""
    store, target = Store(tmp_path), table_of(2)
    run_table(store, 1)
    text, train, *_ = (step for step in in_order([target]))
    missing, mine = to_run([target], store), artifacts_of(store, "table2", "embedded")
    assert reasons(missing, store, mine)[train].text.endswith("built with seed 1 (here 2)")
    assert reasons(missing, store, artifacts_of(store, "table2", "multi30k"))[train].text == "never built"
    (store.scratch(train.name) / "recovery" / "00000058").mkdir(parents=True)
    why = reasons(missing, store, mine)
    assert why[train].text == "continues at update 58"
    assert grouped(why)[0] == "train en-de base continues at update 58"
    assert text not in why


def test_another_input_that_is_there_is_a_cause(store: Store) -> None:
    assert _why(_joined(store, "b", "c"), store) == {"join": Reason("another left")}


def test_versions_source_and_arguments(store: Store) -> None:
    """A stage's version is named. With the same version and settings, it is the source or a plain argument."""
    raised = _joined(store, "a", "b", join_stage=replace(JOIN, version=2))
    assert _why(raised, store) == {"join": Reason("built by version 1 of tiny_join.join (here 2)")}
    following = _joined(store, "a", "b", join_stage=replace(JOIN, follows_source=True))
    assert _why(following, store) == {"join": Reason("the source has changed")}
    steps = [WRITE("left", WriteSettings(text="a")), WRITE("right", WriteSettings(text="b"))]
    assert _why(JOIN("join", [Pair(*steps)], Path("other")), store) == {"join": Reason("built with other arguments")}


def test_a_manifest_that_cannot_be_read_explains_nothing(store: Store, tmp_path: Path) -> None:
    of_other_types = '{"stage": "tiny_write.write", "label": "new", "version": 1, "inputs": [1]}'
    for number, text in enumerate(("", "[]", "{}", of_other_types)):
        folder = tmp_path / "store" / f"tiny_write-{number}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(text)
    assert _why(WRITE("new", WriteSettings(text="z")), Store(tmp_path)) == {"new": Reason("never built")}


def _plan(target: Step[Words], store: Store, verbose: bool = False, forced: list[Step[Words]] | None = None) -> str:
    file = io.StringIO()
    left, _ = target.inputs
    models = {"a model": ([left], {"updates": "30"})}
    why = reasons(to_run([target], store, forced or []), store)
    print_plan(Console(file=file, width=160), [target], models, store, why, verbose)
    return file.getvalue()


def test_the_plan_has_a_line_for_each_model_or_stage(store: Store) -> None:
    shown = _plan(_joined(store, "d", "b"), store)
    shared, rest = (line.split() for line in shown.splitlines()[1:3])  # the model depends on no training run
    assert shared == ["shared", "1", "of", "1", "built", "with", "text", "a", "(here", "d)"]
    assert rest == ["tables", "1", "of", "2", "another", "input"]
    assert f"2 stages to run; store: {store}" in shown
    every = _plan(_joined(store, "d", "b"), store, verbose=True).splitlines()
    assert [" ".join(line.split()[:2]) for line in every[1:4]] == ["left to", "right cached", "join to"]


def test_forced_steps_are_those_of_a_stage_and_all_that_rest_on_them(store: Store) -> None:
    """A stage is named by the first part of its name, or by words on the screen, which the error lists."""
    target = _joined(store, "a", "b")
    chosen, _ = steps_of([target], "tiny_write", "force")
    assert [*to_run([target], store, [chosen]).values()] == ["forced", f"another {chosen.label}"]
    assert "2 stages to run" in _plan(target, store, True, [chosen])
    named = WRITE("train en-de base", WriteSettings(text="a"))
    for name in ("train", "train en-de", "en-de base", "train en-de base"):
        assert steps_of([named, target], name, "until") == [named]
    for name in ("tiny", "trai", "train base"):
        with pytest.raises(UserError, match=f"--until {name}: there is no such stage; choose one of train, right"):
            steps_of([named, target], name, "until")


def test_a_step_runs_is_cached_or_is_not_needed(tmp_path: Path) -> None:
    """The text is removed after it was used, and another seed needs another run and all after it, but no new text."""
    store, other, target = Store(tmp_path), table_of(1), table_of(2)
    make(store, other)
    text, train, *rest = planned([target], store, reasons(to_run([target], store), store))
    assert (text["label"], text["state"], text["why"], text["inputs"]) == ("read en-de", "cached", "", [])
    assert (train["state"], train["why"].partition("; ")[2]) == ("to run", "built with seed 1 (here 2)")
    assert (train["stage"], train["inputs"]) == ("training.train", ["read en-de"])
    assert [step["state"] for step in rest] == ["to run"] * 3
    rmtree(store.folder(f"files-{text['fingerprint']}"))
    drawn = as_mermaid(planned([other], store, reasons(to_run([other], store), store))).splitlines()
    assert drawn[:3] == ["flowchart TD", '    s1["read en-de"]', "    style s1 opacity:0.4"]
    assert drawn[-3:] == ['    s5["table 2"]', "    s4 --> s5", "    style s5 stroke-dasharray:4 3"]


@pytest.mark.parametrize("typed", ["table2 --profile wmt14 --choose-decoding", "table3", "table4"])
def test_json_is_alone_on_standard_output(typed: str, tmp_path: Path, command_line: CommandLine) -> None:
    """Every step, whose label is no other's, with its inputs before it; nothing is written."""
    options = [*typed.split(), "--plan", "--store", str(tmp_path / "new")]
    plan = json.loads(command_line.here("workflows.cli", *options, "--json").stdout)
    steps = {step["label"]: step["inputs"] for step in plan["steps"]}
    assert len(steps) == len({step["fingerprint"] for step in plan["steps"]}) == len(plan["steps"]) > 20
    assert all(steps.keys() - [*steps][number:] >= {*inputs} for number, inputs in enumerate(steps.values()))
    assert plan["command"] == f"aiayn {' '.join([*options, '--json'])}"
    assert f"{len(steps)} stages to run" in command_line.here("workflows.cli", *options).stdout
    last = next(label for label in steps if label.startswith("train"))
    until = json.loads(command_line.here("workflows.cli", *options, "--json", "--until", last).stdout)
    assert until["steps"][-1]["label"] == last
    assert not (tmp_path / "new").exists()
