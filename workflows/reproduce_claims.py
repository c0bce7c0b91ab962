"""Every claim that the paper argues in words, judged: a verdict each, with the figures and seeds that it rests on.

python -m workflows.reproduce_claims                                      # generated text: the tables and more
python -m workflows.reproduce_claims --sections 3.2,4                     # the claims of some sections only
python -m workflows.reproduce_claims --profile multi30k --rows base,A1,E  # real text, some rows of Table 3
python -m workflows.reproduce_claims --plan                               # what would run, and why

It judges Tables 1 to 4, which it makes as their own commands do: what these have run is not run again. Table 2 is left
out where the text is not WMT's, since its claims compare with scores on WMT's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from pipeline.attention.figures import HeadSettings, RelationSettings
from pipeline.complexity.figures import CountedArguments, TimedArguments
from pipeline.complexity.settings import ArgumentSettings
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.errors import UserError
from workflows import paper, reproduce_table1, reproduce_table2, reproduce_table3, reproduce_table4, stages
from workflows.claims import trials
from workflows.claims.evidence import Evidence, Examined, Tokenized, Trial
from workflows.claims.table import FILE, ClaimsArtifact
from workflows.cli import options
from workflows.cli.console import help_text, run_app
from workflows.command_line import CommandLine
from workflows.engine.dag import Imported, Stage, Step, to_step
from workflows.experiment import Reproduction, Request, chosen_names, reproduce, requested
from workflows.profiles.complexity import load_complexity_profile
from workflows.profiles.loading import load_profile
from workflows.profiles.parsing import load_parsing_profile
from workflows.profiles.profile import Profile
from workflows.tables.measurements import TrainedModel

COUNT_ARGUMENTS = Stage("counted_arguments.count", Imported("pipeline.complexity.arguments:count"), CountedArguments)
TIME_ARGUMENTS = Stage("timed_arguments.time", Imported("pipeline.complexity.arguments:time_"), TimedArguments, gpus=1)
JUDGE = Stage(
    "claims.judge", Imported("workflows.claims.report:judge"), ClaimsArtifact, computes=True, follows_source=True
)

NEEDS: Mapping[str, tuple[str, ...]] = {
    "3.2.1": ("functions", "counted", "timed"),
    "3.2.2": ("counted", "timed"),
    "3.5": ("counted", "extrapolation"),
    "4": ("counted", "timed", "table1", "examined"),
    "5.4": ("table3",),
    "6.1": ("table2", "averaging"),
    "6.2": ("table3",),
    "6.3": ("table4",),
    "figure 3": ("examined",),
    "figure 4": ("examined",),
    "figure 5": ("examined",),
}
"""What the claims of each section are judged by."""
READ_BY: Mapping[str, tuple[str, ...]] = {
    "pairs": ("table2", "table3", "averaging", "extrapolation", "functions", "examined"),
    "models": ("table2", "averaging", "examined"),
    "rows": ("table3",),
    "treebank": ("table4",),
}
"""What each of these options chooses for."""
NO_CHANGES: Mapping[str, Sequence[str]] = MappingProxyType({"table1": (), "table4": ()})


OTHERS = ("table1", "table4")
"""Tables with settings of their own: `--set table4.choice.dropouts=[0.1]` changes one of Table 4's."""


def changes_by_table(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Sorts changes such as `table1.timing.rounds=3` by the table whose settings they change, all others under ""."""
    changes: dict[str, list[str]] = {name: [] for name in ("", *OTHERS)}
    for override in overrides:
        table, _, change = override.partition(".")
        changes[table if table in OTHERS else ""].append(change if table in OTHERS else override)
    return changes


def chosen_sections(asked: str | None) -> list[str]:
    """Reads an option such as "3.2,6.1": sections or the beginnings of some, None for all.

    Returns each section once, in the paper's order. Raises UserError for one in which nothing is claimed.
    """
    chosen: set[str] = set()
    for section in [""] if asked is None else [name.strip().removeprefix("§") or "''" for name in asked.split(",")]:
        matching = {known for known in NEEDS if known.startswith(section)}
        if not matching:
            raise UserError(f"--sections {section}: nothing is claimed there; choose from {', '.join(NEEDS)}")
        chosen |= matching
    return [known for known in NEEDS if known in chosen]


@dataclass(frozen=True)
class Experiments:
    """The tables and trials that are judged, by name, and the steps that belong to no model."""

    tables: Mapping[str, Reproduction]
    trials: Mapping[str, Sequence[Trial[Any]]]
    others: Evidence
    sections: Sequence[str]
    command: CommandLine

    @property
    def models(self) -> dict[str, TrainedModel]:
        """All models that are trained, by the names that their failures have."""
        models = {
            f"{name} {model}": cell for name, table in self.tables.items() for model, cell in table.models.items()
        }
        return models | {trial.name: trial.evaluation for group in self.trials.values() for trial in group}

    def judged(self, failures: Mapping[str, str]) -> Step[ClaimsArtifact]:
        """Returns the step that judges what did not fail."""
        evidence: dict[str, Any] = {}
        for name, table in self.tables.items():
            own = {model: why for model, why in failures.items() if model.startswith(f"{name} ")}
            evidence[name] = table.tabulate({model.removeprefix(f"{name} "): why for model, why in own.items()})
        for name, group in self.trials.items():
            evidence[name] = [trial for trial in group if trial.name not in failures]
        return JUDGE("claims", replace(self.others, **evidence), self.sections, self.command)


def experiments(
    profile: Profile,
    sections: Sequence[str],
    request: Request,
    cells: tuple[list[str], list[str]],
    rows: str | None,
    treebank: Path | None,
    changes: Mapping[str, Sequence[str]] = NO_CHANGES,
) -> Experiments:
    """Returns what some sections need.

    `cells` are the language pairs and models of Table 2, whose first is taken where one of them is enough; `rows` are
    those of Table 3 (None: all), `treebank` is Table 4's (None: generated trees), `changes` are by `changes_by_table`.
    """
    names = {name for section in sections for name in NEEDS[section]}
    (pair, *_), (model, *_) = cells
    tables: dict[str, Reproduction] = {}
    others: dict[str, Any] = {}
    arguments = ArgumentSettings()
    if "counted" in names:
        others["counted"] = COUNT_ARGUMENTS("count arguments", arguments)
    if "timed" in names:
        layers = load_complexity_profile(overrides=changes["table1"])
        timed = reproduce_table1.exclusive(TIME_ARGUMENTS, layers)
        others["timed"] = timed("time arguments", others["counted"], arguments, layers.timing)
    if "table1" in names:
        layers = load_complexity_profile(overrides=changes["table1"])
        tables["table1"] = reproduce_table1.reproduction(layers, request.command)
        others["counts"] = reproduce_table1.counted(layers)
    if "table2" in names:
        others["is_of_other_text"] = paper.experiment(pair, model).corpus not in profile.data
        if not others["is_of_other_text"]:
            tables["table2"] = reproduce_table2.reproduction(profile, *cells, request)
    if "table3" in names:
        tables["table3"] = reproduce_table3.reproduction(
            profile.for_pair(pair).for_grid(), pair, rows, 1, request, name=trials.grid_text(pair)
        )
    if "table4" in names:
        trees = load_parsing_profile(treebank=treebank, overrides=changes["table4"])
        tables["table4"] = reproduce_table4.reproduction(trees, request)
        name = next(iter(trees.corpora))
        text = stages.prepared(trees.for_pair(name), name)
        others["trees"] = Tokenized(next(iter(text.test_sets.values())), text.vocabulary)
    if "examined" in names:
        others["examined"] = _examined(profile, pair, model)
    if "functions" in names:
        others["functions"] = trials.functions(profile, pair)
    groups: dict[str, Sequence[Trial[Any]]] = {}
    if "averaging" in names:
        groups["averaging"] = trials.averaging(profile, pair, model)
    if "extrapolation" in names:
        groups["extrapolation"] = trials.extrapolation(profile, pair)
    return Experiments(tables, groups, Evidence(**others), sections, request.command)


def _examined(profile: Profile, pair: str, model: str) -> Examined:
    """Returns what is examined of a model's heads."""
    text, corpus = stages.prepared(profile, pair), profile.for_pair(pair).corpora[pair]
    (cell,) = reproduce_table2.cells_of(profile, [pair], [model])
    heads = stages.EXAMINE_HEADS(f"heads {pair} {model}", cell.checkpoint, text.dev, HeadSettings())
    relations = None
    if isinstance(corpus, EmbeddedSettings):
        relations = stages.MEASURE_RELATIONS(
            f"relations {pair} {model}", cell.checkpoint, corpus.text("train"), RelationSettings()
        )
    return Examined(to_step(cell.checkpoint), Tokenized(text.dev, text.vocabulary), heads, relations)


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
@options.with_options
def main(
    common: options.Common,
    hardware: options.Hardware,
    profile: options.ProfileOption = None,
    data: options.DataOption = None,
    pairs: Annotated[
        str | None,
        typer.Option(
            help="Language pairs of Table 2; all else is run for the first in the profile's order.  [default: all]"
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="Models of Table 2; heads and averaging are those of the first in the profile's order.  [default: all]"
        ),
    ] = None,
    sections: Annotated[
        str | None, typer.Option(help="Sections whose claims are judged, e.g. 3.2,6.1.  [default: all]")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Rows of Table 3 that are trained, as --rows there.  [default: all]")
    ] = None,
    treebank: Annotated[
        Path | None, typer.Option(help="Treebank for Table 4, as there.  [default: generated trees]")
    ] = None,
) -> None:
    """Makes what is not in the store, judges the claims, prints them."""
    changes = changes_by_table(common.overrides or [])
    chosen = load_profile(profile, data=data, config=common.config, overrides=changes[""])
    request = requested("claims", chosen, common, hardware)
    cells = chosen_names("pairs", pairs, chosen.corpora), chosen_names("models", models, chosen.recipes)
    judged = chosen_sections(sections)
    read = {name for section in judged for name in NEEDS[section]}
    for option, given in {"pairs": pairs, "models": models, "rows": rows, "treebank": treebank}.items():
        if given is not None and read.isdisjoint(READ_BY[option]):
            raise UserError(f"--{option}: the claims of --sections {sections} do not depend on it; leave it out")
    reached = {"table1": {"table1", "timed"}, "table4": {"table4"}}
    for table, names in reached.items():
        if changes[table] and read.isdisjoint(names):
            raise UserError(f"--set {table}.{changes[table][0]}: no claim of --sections {sections} depends on it")
    needed = experiments(chosen, judged, request, cells, rows, treebank, changes)
    experiment = Reproduction(
        name="claims",
        params={"profile": chosen.name, "sections": ", ".join(judged) if sections else "all"},
        models=needed.models,
        reports={},
        tabulate=needed.judged,
        measured={trial.name: to_step(trial.measured) for group in needed.trials.values() for trial in group},
        first=[step for table in needed.tables.values() for step in table.first],
        report=FILE,
        forecast=Imported("workflows.forecast.estimate:forecast_text"),
    )
    reproduce(experiment, request)


if __name__ == "__main__":
    run_app(app, "python -m workflows.reproduce_claims")
