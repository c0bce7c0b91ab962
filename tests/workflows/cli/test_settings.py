"""`aiayn settings`, --updates, and the surface that users rely on: commands, options and settings."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from pipeline.settings import settings_in
from tests.support.command_line import CommandLine
from workflows.cli.main import app
from workflows.cli.reproduce import app_of
from workflows.experiments import EXPERIMENTS
from workflows.profiles.complexity import load_complexity_profile
from workflows.profiles.loading import load_profile
from workflows.profiles.parsing import load_parsing_profile, wsj_profile

SURFACE = Path(__file__).with_name("surface.json")
"""Whoever changes it says why in the commit: `PYTHONPATH=. python -m tests.workflows.cli.test_settings` writes it."""

SETTINGS_PAGE = Path(__file__).parents[3] / "docs" / "settings.md"
HIDDEN = ("data", "corpora", "recipes", "pairs")
"""Groups that the page leaves out: the text, and recipes like base's."""
PAGE = """\
# All settings

Names are those of `--set NAME=VALUE` and of `--config` files; `aiayn settings table2` prints those of all models, with
the values in force. Other recipes (`recipes.big`, ...) have the settings of `recipes.base`. Names tell units: tokens,
updates, pairs. Profiles wmt14 and, for Table 4, wsj are the paper's. The program writes this page.
"""


def surface() -> dict[str, Any]:
    """Returns the options and arguments of each command, and the settings of each table's default profile."""
    commands: dict[str, Any] = {}

    def add(name: str, command: Any) -> None:
        options = (option for each in command.params for option in (*each.opts, *each.secondary_opts))
        commands[name] = sorted(option for option in options if option != "--help")
        for inner, each in getattr(command, "commands", {}).items():
            add(f"{name} {inner}", each)

    add("aiayn", typer.main.get_command(app))
    for name, experiment in EXPERIMENTS.items():
        add(f"aiayn {name}", typer.main.get_command(app_of(experiment.module)))
    of = {"table1": load_complexity_profile("cpu"), "table2": load_profile("wmt14"), "table4": load_parsing_profile()}
    settings = {name: [each.name for each in settings_in(profile, profile.FIXED)] for name, profile in of.items()}
    return {"commands": commands, "settings": settings}


def page() -> str:
    """Returns the page of all settings, with the values of the tables' profiles."""
    of_text = [load_profile(name) for name in ("wmt14", "multi30k", "embedded")]
    of_trees = [wsj_profile(Path("wsj"), []), load_parsing_profile()]
    of_layers = [load_complexity_profile(name) for name in ("cpu", "gpu")]
    text = PAGE
    for title, profiles in (("Tables 2 and 3", of_text), ("Table 4", of_trees), ("Table 1", of_layers)):
        columns = [{each.name: each.text for each in settings_in(profile, profile.FIXED)} for profile in profiles]
        text += f"\n## {title}\n\n| setting | {' | '.join(each.name for each in profiles)} | meaning |\n"
        text += f"{'|---' * (len(profiles) + 2)}|\n"
        for each in settings_in(profiles[0], profiles[0].FIXED):
            if each.name.startswith(("recipes.base.", "recipes.parser.")) or each.name.partition(".")[0] not in HIDDEN:
                values = " | ".join(column.get(each.name, "") for column in columns)
                text += f"| `{each.name}` | {values} | {each.meaning} |\n"
    return text


def test_the_surface_and_the_page_of_settings_are_the_program_s() -> None:
    assert surface() == json.loads(SURFACE.read_text(encoding="utf-8"))
    assert page() == SETTINGS_PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", json.loads(SURFACE.read_text(encoding="utf-8"))["commands"])
def test_help_has_no_python_types_and_whole_lines(command: str, command_line: CommandLine) -> None:
    shown = command_line.here("workflows.cli", *command.split()[1:], "--help").stdout
    assert "Usage: aiayn" in shown
    assert not re.search(r"<\w|\w\.\.\.$|.{81}", shown, re.MULTILINE)


def test_each_listed_setting_is_set_by_its_name_and_text() -> None:
    """All but those that are None, which has no text."""
    profile = load_profile("multi30k")
    listed = [each for each in settings_in(profile, profile.FIXED) if each.text]
    assert len(listed) > 200
    assert load_profile("multi30k", overrides=[f"{each.name}={each.text}" for each in listed]) == profile


def test_settings_have_the_paper_s_values_and_meanings(command_line: CommandLine) -> None:
    asked = ("settings", "table2", "--profile", "multi30k")
    found = json.loads(command_line.here("workflows.cli", *asked, "--json", "Base.Training.MODEL.d_k").stdout)
    assert found == [{"name": "recipes.base.training.model.d_k", "value": "64", "meaning": "", "paper": "64"}]
    shown = command_line.here("workflows.cli", *asked, "learned position table").stdout.splitlines()
    assert shown[1:3] == ["recipes.base.training.model.max_positions=1024", "    Size of the learned position table"]
    shown = command_line.here("workflows.cli", *asked, "base.training.updates").stdout.splitlines()
    assert shown[1] == "recipes.base.training.updates=5600  (the paper: 100000)"
    done = command_line.here("workflows.cli", *asked, "warmth")
    assert (done.returncode, done.stderr) == (
        2,
        "error: no setting has 'warmth' in its name or meaning; without it, all are listed\n",
    )
    assert command_line.here("workflows.cli", "settings", "table1").returncode == 0  # which has no paper's values


@pytest.mark.parametrize("updates", [3, 60, 11_200])
def test_updates_scale_what_depends_on_them(updates: int) -> None:
    """Also the updates and warm-ups of a grid's rows, and of Table 4's choices of a learning rate."""
    asked = ["grid.rows.F={updates = 10_000, warmup_steps = 5000}", f"updates={updates}"]
    usual, short = load_profile("multi30k"), load_profile("multi30k", overrides=asked)
    assert short.grid.rows["F"] == {"updates": 2 * updates, "warmup_steps": updates}
    parsers = load_parsing_profile(overrides=["choice.learning_rate_scales=[0.5, [5.0, 2600]]", f"updates={updates}"])
    assert parsers.choice.learning_rate_scales == ((0.5, None), (5.0, updates))
    for training, full in [(short.recipes[name].training, usual.recipes[name].training) for name in usual.recipes]:
        rates = [each.optimizer.learning_rate_scale * each.optimizer.warmup_steps**-0.5 for each in (training, full)]
        assert rates[0] == pytest.approx(rates[1])  # the highest of equation 3
        assert (training.updates, len(training.kept_updates)) == (updates, min(full.keep_checkpoints, updates))
        assert training.validation_updates <= updates


if __name__ == "__main__":
    SETTINGS_PAGE.write_text(page(), encoding="utf-8")
    SURFACE.write_text(json.dumps(surface(), indent=1) + "\n", encoding="utf-8")
