"""`aiayn settings TABLE [WORD]`: each setting by its name for --set, its value, the paper's, and what it means.

for setting in settings_in(profile): print(setting.name, setting.value, setting.meaning)
"""

import json
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated

import typer

from pipeline.errors import UserError
from pipeline.settings import settings_in
from workflows.cli.console import console
from workflows.cli.reproduce import Asked, say
from workflows.experiment import Reproduction
from workflows.profiles.changes import BaseProfile
from workflows.profiles.parsing import ParsingProfile, wsj_profile
from workflows.profiles.profile import Profile
from workflows.profiles.translation import WMT14

SETTINGS = "List a table's settings. By their names for --set, with their values, the paper's, and what they mean."


def papers(profile: BaseProfile) -> dict[str, str]:
    """Returns the paper's values of a table's settings, by name; none for Table 1, whose sizes it does not state."""
    if not isinstance(profile, Profile):
        return {}
    of_paper = wsj_profile(Path("wsj"), []) if isinstance(profile, ParsingProfile) else WMT14
    shown = (each for each in settings_in(of_paper, of_paper.FIXED) if not each.name.startswith(("corpora.", "data")))
    return {each.name: each.text for each in shown}


@dataclass(frozen=True)
class Words:
    """The argument beside the table's options."""

    word: Annotated[str, typer.Argument(help="Only settings whose names or meanings contain this.")] = ""


def print_settings(_experiment: Reproduction, request: Asked, words: Words) -> None:
    """Prints the settings. Raises UserError if none has the word."""
    paper, word = papers(request.profile), words.word
    every = settings_in(request.profile, request.profile.FIXED)
    found = [each for each in every if word.lower() in f"{each.name} {each.meaning}".lower()]
    if not found:
        raise UserError(f"no setting has {word!r} in its name or meaning; without it, all are listed")
    if request.options.json:
        rows = [each._asdict() | {"value": each.text, "paper": paper.get(each.name)} for each in found]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    say(request.profile.in_force(request.overrides))
    for each in found:
        others = paper.get(each.name, each.text)
        say(f"{each.name}={each.text}" + f"  (the paper: {others})" * (others != each.text))
        if each.meaning:
            say(fill(each.meaning, console.width, initial_indent=4 * " ", subsequent_indent=4 * " "))
