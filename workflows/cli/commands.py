"""The experiments as commands of `aiayn`: made from their registry, and imported when they run."""

from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from workflows.cli.console import app_of
from workflows.experiments import EXPERIMENTS


class Commands(TyperGroup):
    """The experiments' commands and an app's own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        listed = {name: TyperCommand(name, short_help=each.summary) for name, each in EXPERIMENTS.items()}
        self.commands = {**listed, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the name of the command to run, the command, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        experiment = EXPERIMENTS.get(name or "")
        return name, get_command(app_of(experiment.module)) if experiment else command, rest
