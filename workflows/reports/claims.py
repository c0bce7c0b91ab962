"""Writes the claims report, one HTML file: the last stage of the workflow."""

import math
from collections.abc import Sequence
from statistics import fmean

from pipeline.complexity.attention_training import AttentionTrainingRecord
from pipeline.complexity.recall import RecallRecord
from pipeline.complexity.records import ArgumentTimes
from pipeline.store.artifact import Context
from pipeline.training.speed import TrainingSpeedRecord
from workflows.claims.claim import Evidence
from workflows.claims.competitors import Curves, Speeds
from workflows.claims.functions import at_best_rates
from workflows.claims.translators import ByLength
from workflows.command_line import UNKNOWN, CommandLine
from workflows.engine.dag import to_artifact
from workflows.reports import page
from workflows.reports.forest import EFFECTS, forests
from workflows.reports.page import Section
from workflows.reports.plots import Curve, curves, nll_over
from workflows.tables.claims import FILE, ClaimsArtifact, Sources, compute, evidence
from workflows.tables.judged import tallies
from workflows.tables.table import NAME, Column, Table, Value, columns, in_order


def judge(
    context: Context, sources: Sources, sections: Sequence[str] = ("",), command: CommandLine = UNKNOWN
) -> ClaimsArtifact:
    """Judges the claims of the sections with these prefixes, by the evidence in `sources`."""
    found = evidence(sources)
    results, drawn = compute(sources, found, sections), list[Section]()
    if "competitors" in found.found:
        drawn.append(_competitors(found.found["competitors"]))
    if sources.training_speed:
        drawn.append(_training_speed(found.found["training_speed"], to_artifact(sources.training_speed).load()))
    if sources.functions:
        drawn.append(_functions(found))
    if sources.recall:
        drawn.append(_recall(found.found["recall"]))
    if sources.extrapolation:
        drawn.append(_positions(found.found["extrapolation"]))
    return page.write(
        context,
        ClaimsArtifact,
        results,
        lead="The paper’s claims, one by one: measured effects with 95% confidence intervals, the paper’s effects, and "
        f"a verdict where the evidence suffices. {EFFECTS}",
        said=" ".join(tallies(results.claims)),
        pictures=forests(results.claims),
        sections=drawn,
        runs={trial.name: trial.evaluation for trial in sources.trials},
        command=command,
        name=FILE,
    )


def _competitors(trained: Curves) -> Section:
    """Plots dev NLL over seconds and over FLOP, one curve per run."""
    drawings = []
    for title, of_curve in (("seconds", lambda curve: curve.seconds), ("FLOP", lambda curve: curve.flop)):
        lines = [
            Curve(model, [*zip(of_curve(curve), curve.nll, strict=True)])
            for model, of_model in trained.items()
            for curve in of_model
        ]
        drawings.append(nll_over(title, lines))
    return Section(
        "The Transformer and its competitors",
        "Dev NLL of models of equal size, trained on the same text with the same loss, optimizer and schedule. One "
        "curve per seed. The models are compared where the shortest curve ends.",
        drawings,
    )


def _training_speed(speeds: Speeds, timed: TrainingSpeedRecord) -> Section:
    """Draws tokens/s over sentence length for each model."""
    sizes = ", ".join(
        f"{model} {1e3 * speed.mean_update_s:.0f} ms ({speed.parameters:,})" for model, speed in speeds.items()
    )
    lines = [
        Curve(model, [(length, fmean(rates)) for length, rates in speed.tokens_s.items()])
        for model, speed in speeds.items()
    ]
    return Section(
        "Speed of training over sentence length",
        f"{timed.device_name}, {timed.threads} thread{'s' * (timed.threads > 1)}, {timed.dtype}. An update of the plan "
        f"takes (parameters): {sizes}. The curves: updates of {timed.budget_tokens:,} tokens in fewer, longer "
        "sentences, padded and not compiled. The attention of the recurrent model is additive, which costs it more per "
        "pair of positions.",
        [curves("target tokens/s", "tokens a sentence", lines, "tokens-s-over-length", log=True)],
    )


def _functions(found: Evidence) -> Section:
    """Shows each attention function's dev perplexity over d_k at its best learning rate, its time and its memory."""
    trainings: list[AttentionTrainingRecord] = found.found["functions"]
    times: ArgumentTimes | None = found.found.get("timed")
    chosen = at_best_rates(trainings)
    functions = list(dict.fromkeys(function for function, _ in chosen))
    sizes = sorted({d_k for _, d_k in chosen})
    means = {key: math.exp(fmean(each.dev_nll for each in seeds)) for key, seeds in chosen.items()}
    lines = [Curve(name, [(d_k, means[name, d_k]) for d_k in sizes]) for name in functions]
    shown = [Column(NAME, "d_k")]
    for name in functions:
        shown += columns("perplexity", "rate ×", block=name, spec=".2f", is_measured=True)
        shown += columns("ms", "MB", block=name, spec=".2f", is_measured=True) if times else []
    rows = []
    for d_k in sizes:
        values: list[Value] = []
        for name in functions:
            values += [means[name, d_k], chosen[name, d_k][0].learning_rate_scale]
            if times:
                timed = times.functions[name][d_k]
                values += [1e3 * timed.median_s, timed.peak_bytes / 1e6]
        rows.append(in_order(shown, f"{d_k}", *values))
    return Section(
        "Attention functions",
        f"Dev perplexity after {trainings[0].updates:,} updates at the best of the learning rates tried. The first "
        "seed chooses the rate; perplexity is the mean over the other seeds. Time and peak memory cover only the "
        "function, forward and backward.",
        [curves("dev perplexity", "d_k", lines, "functions-over-d_k", log=True)],
        [Table("Perplexity, rate, time and memory over d_k", shown, rows)],
    )


def _recall(recalled: Sequence[RecallRecord]) -> Section:
    """Plots NLL over the distance, one curve per layer type."""
    lines = [
        Curve(name, [(record.distance, fmean(record.nll)) for record in recalled if record.layer_type == name])
        for name in dict.fromkeys(record.layer_type for record in recalled)
    ]
    return Section(
        "Recall at a distance",
        "Networks of one layer type learn to recall a symbol seen some positions before. Each is as deep as its path "
        f"requires. Means over the seeds after {recalled[0].settings.updates} updates at the best of the learning "
        "rates tried. Chance level is 2.08 nats.",
        [curves("NLL, nats", "positions", lines, "recall-over-distance")],
    )


def _positions(trainings: ByLength) -> Section:
    """Plots dev perplexity over sentence length, including lengths beyond the training data's."""
    nll: dict[str, dict[int, list[float]]] = {}
    for kind, perplexities in trainings:
        for part in perplexities.ranges:
            nll.setdefault(kind, {}).setdefault(part.up_to_tokens, []).append(part.dev_nll)
    lines = [
        Curve(kind, [(up_to, math.exp(fmean(values))) for up_to, values in of_kind.items()])
        for kind, of_kind in nll.items()
    ]
    return Section(
        "Sentences longer than in training",
        "Dev perplexity by length, in tokens of a pair's longer side. Each point is the mean over the seeds at the "
        "upper end of a length range. The short-sentence models saw at most "
        f"{trainings[0][1].longest_trained} tokens per sentence.",
        [curves("dev perplexity by length", "tokens", lines, "perplexity-by-length", log=True)],
    )
