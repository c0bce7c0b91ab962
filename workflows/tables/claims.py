"""Collects all judged claims of the paper: those of the tables, and those with trials and timings of their own.

python -m workflows.reproduce_claims
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from pipeline.attention.records import Relations
from pipeline.complexity.attention_training import AttentionTraining
from pipeline.complexity.recall import Recall
from pipeline.complexity.records import TimedArguments
from pipeline.evaluation.perplexity import LengthPerplexity, Perplexity
from pipeline.evaluation.search_choice import DecodingChoice
from pipeline.store.artifact import Artifact
from pipeline.training.speed import TrainingSpeed
from workflows import paper
from workflows.claims.claim import KINDS, Data, Evidence, Judged, judged
from workflows.claims.competitors import MODELS, LearningCurve
from workflows.claims.every_claim import CLAIMS
from workflows.claims.identities import IDENTITIES
from workflows.claims.translators import LEARNED, SINUSOIDS
from workflows.engine.dag import Ref, to_artifact
from workflows.tables.differences import ASPECTS, Difference, differences
from workflows.tables.judged import VERDICTS, verdicts
from workflows.tables.measurements import TrainedModel, Translation
from workflows.tables.provenance import dtypes
from workflows.tables.table import Results, ResultsArtifact

T_co = TypeVar("T_co", bound=Artifact, covariant=True)
FILE = "claims.html"


class ClaimsArtifact(ResultsArtifact):
    """`claims.json`, `claims.md`, `claims.html` and `seeds.csv`."""

    record_file = "claims.json"


@dataclass(frozen=True)
class Trial(Generic[T_co]):
    """A run with one seed, the evaluation of its last checkpoint on the dev set, and further measurements."""

    kind: str
    """The variant that its seeds share; for positions, a name of `claims.translators.KINDS`."""
    name: str
    evaluation: Translation
    measured: Ref[T_co]


@dataclass(frozen=True)
class Sources:
    """The evidence for the claims: steps while the DAG is built, artifacts in the judging stage."""

    tables: Sequence[Ref[Any]] = ()
    """The tables that judge claims themselves."""
    timed: Ref[TimedArguments] | None = None
    functions: Sequence[Ref[AttentionTraining]] = ()
    """Small models with each attention function."""
    recall: Sequence[Ref[Recall]] = ()
    """Recall of symbols at a distance, by each layer type."""
    extrapolation: Sequence[Trial[LengthPerplexity]] = ()
    """Perplexity on sentences longer than in training."""
    averaging: Sequence[Trial[DecodingChoice]] = ()
    """The search chosen for the average of several checkpoints."""
    heads: Sequence[Trial[Relations]] = ()
    """The word pairs that each model's heads link."""
    competitors: Sequence[Trial[Perplexity]] = ()
    """The Transformer, a recurrent and a convolutional model."""
    training_speed: Ref[TrainingSpeed] | None = None
    """Training speeds of these models, in the order of `claims.competitors.MODELS`."""
    data: tuple[Data, ...] = ()
    """The kinds of claims that the text can judge."""

    TRIALS: ClassVar = ("extrapolation", "averaging", "heads", "competitors")

    @property
    def trials(self) -> list[Trial[Any]]:
        """All runs except the tables'."""
        return [trial for name in self.TRIALS for trial in getattr(self, name)]

    def without(self, failed: Collection[str]) -> "Sources":
        """Returns a copy without the trials of these names."""
        kept: dict[str, Any] = {
            name: [trial for trial in getattr(self, name) if trial.name not in failed] for name in self.TRIALS
        }
        return replace(self, **kept)


def evidence(sources: Sources) -> Evidence:
    """Returns the evidence from outside the tables, under the names that claims refer to."""
    found: dict[str, Any] = {}
    if sources.timed:
        found["timed"] = to_artifact(sources.timed).load()
    if sources.functions:
        found["functions"] = [to_artifact(training).load() for training in sources.functions]
    if sources.recall:
        found["recall"] = [to_artifact(trained).load() for trained in sources.recall]
    if sources.extrapolation:
        found["extrapolation"] = [(trial.kind, to_artifact(trial.measured).load()) for trial in sources.extrapolation]
    if sources.averaging:
        found["averaging"] = [
            (
                trial.evaluation.main_bleu.deciding,
                trial.evaluation.decoding.settings,
                to_artifact(trial.measured).load(),
            )
            for trial in sources.averaging
        ]
    if sources.heads:
        found["heads"] = [to_artifact(trial.measured).load().relations for trial in sources.heads]
    if sources.training_speed:
        speeds = dict(zip(MODELS, to_artifact(sources.training_speed).load().models, strict=True))
        found["training_speed"] = speeds
        # A schedule that ends with its run is not comparable at a shorter budget.
        schedules = {trial.evaluation.settings.optimizer.schedule for trial in sources.competitors}
        if schedules == {"inverse_sqrt"}:
            curves: dict[str, list[LearningCurve]] = {}
            for trial in sources.competitors:
                rounds_s, of_model = speeds[trial.kind].update_s, curves.setdefault(trial.kind, [])
                of_model.append(learning_curve(trial.evaluation, rounds_s[len(of_model) % len(rounds_s)]))
            found["competitors"] = curves
    return Evidence(found, sources.data)


def learning_curve(model: TrainedModel, update_s: float) -> LearningCurve:
    """Returns a run's dev NLL over FLOP and over seconds, at `update_s` per update."""
    run, measured = model.run, [line for line in model.metrics if "dev_nll" in line]
    # The learning rate is each model's own.
    alike = run.settings.model_copy(update={"optimizer": replace(run.settings.optimizer, learning_rate_scale=1.0)})
    settings = {name: value for name, value in alike.identity().items() if name not in ("model", "seed")}
    return LearningCurve(
        [line["update"] * update_s for line in measured],
        [line["update"] / run.updates * run.counted_flop for line in measured],
        [line["dev_nll"] for line in measured],
        f"{dtypes(run.segments)}; {settings}",
    )


def compute(sources: Sources, found: Evidence, sections: Sequence[str] = ("",)) -> Results:
    """Judges the claims of the sections with these prefixes."""
    tables: dict[str, Results] = {table.tables[0].title: table for table in map(_loaded, sources.tables)}
    by_tables = {(claim.section, claim.text): claim for table in tables.values() for claim in table.claims}
    claims = [
        by_tables.get((claim.section, claim.text), claim)
        for claim in judged(CLAIMS, found)
        if claim.section.startswith(tuple(sections))
    ]
    differing = {name: table.differences for name, table in tables.items()} | _of_trials(sources)
    return Results([], _gathered(differing), _notes(sections), _metrics(claims), claims)


def _loaded(table: Ref[Any]) -> Results:
    results: Results = to_artifact(table).load()
    return results


def _metrics(claims: Sequence[Judged]) -> dict[str, float]:
    """Counts the claims by kind and verdict, under their MLflow names."""
    counted = {kind: verdicts(claims, kind) for kind in KINDS}
    return {f"{kind}: {verdict}": counted[kind][verdict] for kind in KINDS for verdict in VERDICTS if counted[kind]}


def _notes(sections: Sequence[str]) -> list[str]:
    """Lists the sections' identities, which hold without any run."""
    listed = [each for each in IDENTITIES if each.section.startswith(tuple(sections))]
    holding, refuted = ([each for each in listed if each.is_exact == exact] for exact in (True, False))
    notes = [
        f"{words}, by tests: " + "; ".join(f"{each.text} (§{each.section})" for each in of_kind) + "."
        for words, of_kind in (("Identities that hold", holding), ("Statements that are not exact", refuted))
        if of_kind
    ]
    return [
        *notes,
        "Timings hold for this machine; their intervals are over rounds. Claims about the paper's printed values are "
        "checked against those values and say nothing about models trained here.",
        "Generated text shows what a mechanism costs and whether it can work. Only real text shows whether one design "
        "translates better than another (docs/protocol.md).",
    ]


def _of_trials(sources: Sources) -> dict[str, list[Difference]]:
    """Returns the differences from the paper of the runs outside the tables, one run of each kind."""
    # Both the last checkpoint and the average are measured here.
    of_both = {what: aspect for what, aspect in ASPECTS.items() if what != "averaged checkpoints"}
    return {
        "averaging": differences([trial.evaluation for trial in sources.averaging[:1]], aspects=of_both),
        "heads": differences([trial.evaluation for trial in sources.heads[:1]]),
        "competitors": differences([*{trial.kind: trial.evaluation for trial in sources.competitors}.values()]),
        "positions": differences(
            [*{trial.kind: trial.evaluation for trial in sources.extrapolation}.values()],
            lambda _pair, row: paper.variation_experiment(row),
        )
        + [
            Difference(
                "training sentences",
                "all",
                f"at most {longest} tokens a side",
                (SINUSOIDS, LEARNED),
            )
            for longest in (to_artifact(trial.measured).load().longest_trained for trial in sources.extrapolation[:1])
        ],
        "functions": [
            Difference("attention functions", "not printed", f"{run.updates:,} updates of small models", ("all",))
            for run in (to_artifact(training).load() for training in sources.functions[:1])
        ],
    }


def _gathered(differing: Mapping[str, Sequence[Difference]]) -> list[Difference]:
    """Returns each difference once; its cells are prefixed with the names of the groups that share it."""
    cells: dict[tuple[str, str, str], list[str]] = {}
    for name, listed in differing.items():
        for difference in listed:
            key = difference.what, difference.paper, difference.here
            cells.setdefault(key, []).extend(f"{name}: {cell}" for cell in difference.cells)
    return [Difference(*key, tuple(labels)) for key, labels in cells.items()]
