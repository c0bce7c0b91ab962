"""Judges every claim that the paper argues in words: one verdict each, with the measurements and seeds behind it.

python -m workflows.reproduce_claims                                      # the claims that generated text can judge
python -m workflows.reproduce_claims --sections 3.2,4                     # only the claims of some sections
python -m workflows.reproduce_claims --profile multi30k --rows base,A1,E  # real text, some rows of Table 3
python -m workflows.reproduce_claims --plan                               # what would run, and why

Tables behind the claims are built as by their own commands and share their results. Claims that the text cannot judge
are not run: generated text shows what mechanisms cost and whether they work (docs/protocol.md).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from pipeline.complexity.recall import RecallSettings
from pipeline.complexity.records import TimedArguments
from pipeline.complexity.settings import ArgumentSettings
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.errors import UserError
from workflows import (
    claim_trials,
    reproduce_table1,
    reproduce_table2,
    reproduce_table3,
    reproduce_table4,
    stages,
)
from workflows.claims.claim import Data
from workflows.claims.every_claim import CLAIMS, SECTIONS
from workflows.cli import options
from workflows.cli.console import help_text, run_app
from workflows.engine.dag import Imported, Stage, Step, to_step
from workflows.experiment import Reproduction, Request, chosen_names, reproduce, requested
from workflows.profiles.complexity import load_complexity_profile
from workflows.profiles.loading import load_profile
from workflows.profiles.parsing import is_wsj, load_parsing_profile
from workflows.profiles.profile import Profile
from workflows.tables.claims import FILE, ClaimsArtifact, Sources

TIME_ARGUMENTS = Stage("timed_arguments.time", Imported("pipeline.complexity.arguments:time_"), TimedArguments, gpus=1)
JUDGE = Stage(
    "claims.judge", Imported("workflows.reports.claims:judge"), ClaimsArtifact, computes=True, follows_source=True
)
READ_BY: Mapping[str, tuple[str, ...]] = {
    "pairs": ("table2", "table3", "averaging", "extrapolation", "functions", "heads", "competitors", "training_speed"),
    "models": ("table2", "averaging", "heads"),
    "rows": ("table3",),
    "treebank": ("table4",),
}
"""The evidence that each of these options selects for."""
NO_CHANGES: Mapping[str, Sequence[str]] = MappingProxyType({"table1": (), "table4": ()})


OTHERS = ("table1", "table4")
"""Tables with settings of their own: `--set table4.choice.dropouts=[0.1]` changes one of Table 4's."""


def changes_by_table(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Groups changes such as `table1.timing.rounds=3` by their table; others are under ""."""
    changes: dict[str, list[str]] = {name: [] for name in ("", *OTHERS)}
    for override in overrides:
        table, _, change = override.partition(".")
        changes[table if table in OTHERS else ""].append(change if table in OTHERS else override)
    return changes


def chosen_sections(asked: str | None) -> list[str]:
    """Parses an option such as "3.2,6.1": sections or prefixes of sections, None for all.

    Returns each section once, in the paper's order. Raises UserError for a section without claims.
    """
    chosen: set[str] = set()
    for section in [""] if asked is None else [name.strip().removeprefix("§") or "''" for name in asked.split(",")]:
        matching = {known for known in SECTIONS if known.startswith(section)}
        if not matching:
            raise UserError(f"--sections {section}: no claims there; choose from {', '.join(SECTIONS)}")
        chosen |= matching
    return [known for known in SECTIONS if known in chosen]


def needed_by(sections: Sequence[str], data: Collection[Data]) -> set[str]:
    """Returns the evidence for the claims of some sections that these data can judge."""
    claims = [claim for claim in CLAIMS if claim.section in sections and (not claim.data or claim.data in data)]
    return {name for claim in claims for name in claim.needs}


def data_of(profile: Profile, pair: str, treebank: Path | None) -> tuple[Data, ...]:
    """Returns the kinds of claims that a text and a treebank can judge. Raises UserError for an unsuitable treebank."""
    of_text = stages.evidence_of(profile.for_pair(pair).corpora[pair])
    if treebank is None:
        return of_text
    if treebank.exists() and not is_wsj(treebank):
        raise UserError(
            f"--treebank {treebank}: no sections of the Wall Street Journal there, on which §6.3 compares parsers; "
            "leave it out, or use workflows.reproduce_table4"
        )
    return (*of_text, "WSJ")


def reproduction(
    profile: Profile,
    sections: Sequence[str],
    request: Request,
    cells: tuple[list[str], list[str]],
    rows: str | None,
    treebank: Path | None,
    changes: Mapping[str, Sequence[str]] = NO_CHANGES,
) -> Reproduction:
    """Returns the experiments behind some sections, and the step that judges their claims.

    `cells` are the language pairs and models of Table 2, whose first is used if one is enough; `rows` are Table 3's
    (None: all), `treebank` is Table 4's (None: no table), `changes` come from `changes_by_table`.
    """
    (pair, *_), (model, *_) = cells
    data = data_of(profile, pair, treebank)
    needs = needed_by(sections, data)
    tables: dict[str, Reproduction] = {}
    sources: dict[str, Any] = {}
    if needs & {"timed", "table1"}:
        layers = load_complexity_profile(overrides=changes["table1"])
        if "timed" in needs:
            timed = reproduce_table1.exclusive(TIME_ARGUMENTS, layers)
            sources["timed"] = timed("time arguments", ArgumentSettings(), layers.timing)
        if "table1" in needs:
            tables["table1"] = reproduce_table1.reproduction(layers, request.command)
    if "table2" in needs:
        tables["table2"] = reproduce_table2.reproduction(profile, *cells, request)
    if "table3" in needs:
        of_grid, seeds = profile.for_pair(pair).for_grid(), profile.claims.seeds
        tables["table3"] = reproduce_table3.reproduction(
            of_grid, pair, rows, seeds, request, name=claim_trials.grid_text(pair)
        )
    if "table4" in needs:
        trees = load_parsing_profile(treebank=treebank, overrides=changes["table4"])
        tables["table4"] = reproduce_table4.reproduction(trees, request)
    if "recall" in needs:
        sources["recall"] = claim_trials.recall(RecallSettings())
    if "functions" in needs:
        sources["functions"] = claim_trials.functions(profile, pair)
    if needs & {"competitors", "training_speed"} and claim_trials.competes(profile, pair):
        sources["training_speed"] = claim_trials.training_speed(profile, pair)
        if "competitors" in needs:
            sources["competitors"] = claim_trials.competitors(profile, pair)
    if "extrapolation" in needs:
        sources["extrapolation"] = claim_trials.extrapolation(profile, pair)
    if needs & {"averaging", "heads"}:
        of_pair, seeded = profile.for_pair(pair), claim_trials.seeded(profile, pair, model)
        if "averaging" in needs:
            sources["averaging"] = claim_trials.averaging(seeded, model, of_pair.choice)
        if "heads" in needs and isinstance(corpus := of_pair.corpora[pair], EmbeddedSettings):
            sources["heads"] = claim_trials.heads(seeded, model, corpus.text("train"))
    evidence = Sources(**sources, data=data)

    def judged(failures: Mapping[str, str]) -> Step[ClaimsArtifact]:
        tabulated = []
        for name, table in tables.items():
            own = {model: why for model, why in failures.items() if model.startswith(f"{name} ")}
            tabulated.append(table.tabulate({model.removeprefix(f"{name} "): why for model, why in own.items()}))
        return JUDGE("claims", replace(evidence.without(failures), tables=tabulated), sections, request.command)

    return Reproduction(
        name="claims",
        params={
            "profile": profile.name,
            "sections": "all" if list(sections) == list(SECTIONS) else ", ".join(sections),
        },
        models={f"{name} {model}": cell for name, table in tables.items() for model, cell in table.models.items()}
        | {trial.name: trial.evaluation for trial in evidence.trials},
        reports={},
        tabulate=judged,
        measured={trial.name: to_step(trial.measured) for trial in evidence.trials},
        first=[step for table in tables.values() for step in table.first],
        report=FILE,
        forecast=Imported("workflows.forecast.estimate:forecast_text"),
    )


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
        typer.Option(help="Language pairs of Table 2; the rest uses the first in the profile's order.  [default: all]"),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="Models of Table 2; heads and averaging use the first in the profile's order.  [default: all]"
        ),
    ] = None,
    sections: Annotated[
        str | None, typer.Option(help="Sections whose claims to judge, e.g. 3.2,6.1.  [default: all]")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Rows of Table 3 to train, like --rows there.  [default: all]")
    ] = None,
    treebank: Annotated[
        Path | None,
        typer.Option(help="Folder of the Wall Street Journal, for Table 4.  [default: skip its claims]"),
    ] = None,
) -> None:
    """Runs missing steps, judges the claims and prints them."""
    changes = changes_by_table(common.overrides or [])
    chosen = load_profile(profile, data=data, config=common.config, overrides=changes[""])
    request = requested("claims", chosen, common, hardware)
    cells = (
        chosen_names("pairs", pairs, chosen.corpora),
        chosen_names("models", models, chosen.default_models),
    )
    judged = chosen_sections(sections)
    read = needed_by(judged, data_of(chosen, cells[0][0], treebank))
    of_sections = f" of --sections {sections}" if sections else ""
    for option, given in {"pairs": pairs, "models": models, "rows": rows, "treebank": treebank}.items():
        if given is not None and read.isdisjoint(READ_BY[option]):
            raise UserError(
                f"--{option}: no claim{of_sections} that profile {chosen.name} can judge depends on it; leave it out"
            )
    reached = {"table1": {"table1", "timed"}, "table4": {"table4"}}
    for table, names in reached.items():
        if changes[table] and read.isdisjoint(names):
            raise UserError(f"--set {table}.{changes[table][0]}: no claim{of_sections} depends on it; leave it out")
    reproduce(reproduction(chosen, judged, request, cells, rows, treebank, changes), request)


if __name__ == "__main__":
    run_app(app, "python -m workflows.reproduce_claims")
