"""Writes the page of the claims, one HTML file: the last stage of the workflow."""

import math
from collections.abc import Sequence
from statistics import fmean

from pipeline.complexity.attention_training import AttentionTrainingRecord
from pipeline.complexity.recall import RecallRecord
from pipeline.complexity.records import ArgumentTimes
from pipeline.store.artifact import Context
from workflows.claims.claim import Evidence
from workflows.claims.competitors import Curves
from workflows.claims.functions import at_best_rates
from workflows.claims.translators import ByLength
from workflows.command_line import UNKNOWN, CommandLine
from workflows.reports import page
from workflows.reports.forest import EFFECTS, forests
from workflows.reports.page import Section
from workflows.reports.plots import Curve, curves, nll_over
from workflows.tables.claims import FILE, ClaimsArtifact, Made, compute, evidence
from workflows.tables.judged import tallies
from workflows.tables.table import NAME, Column, Results, Table, Value, columns, in_order


def render(results: Results, sections: Sequence[Section], command: str = "", warnings: Sequence[str] = ()) -> str:
    """Renders the page as HTML that needs nothing outside itself."""
    return page.render(
        results,
        lead="What the paper argues, sentence by sentence: effects with 95 % intervals beside the paper’s own, and a "
        f"verdict where the evidence suffices for one. {EFFECTS}",
        said=" ".join(tallies(results.claims)),
        pictures=forests(results.claims),
        sections=sections,
        command=command,
        warnings=warnings,
    )


def judge(
    context: Context, made: Made, sections: Sequence[str] = ("",), command: CommandLine = UNKNOWN
) -> ClaimsArtifact:
    """Judges the claims of the sections that begin so, by whatever was made for them."""
    found = evidence(made)
    results, drawn = compute(made, found, sections), list[Section]()
    if "competitors" in found.found:
        drawn.append(_competitors(found.found["competitors"]))
    if made.functions:
        drawn.append(_functions(found))
    if made.recall:
        drawn.append(_recall(found.found["recall"]))
    if made.extrapolation:
        drawn.append(_positions(found.found["extrapolation"]))
    artifact = ClaimsArtifact(context.folder)
    html = render(results, drawn, command.typed, context.warnings)
    page.write(artifact, results, html, FILE, models={trial.name: trial.evaluation for trial in made.trials})
    return artifact


def _competitors(trained: Curves) -> Section:
    """Draws dev NLL over seconds and over FLOP, a curve for each training."""
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
        "Dev NLL of models with as many parameters, on the same text, by the same loss, optimizer and schedule; a "
        "curve for each seed. They are compared where the shortest curve ends.",
        drawings,
    )


def _functions(found: Evidence) -> Section:
    """Shows dev perplexity over d_k for each attention function, at its best rate, with its time and memory."""
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
        "seed chooses the rate, and perplexity is the mean over the others. Time and peak memory are those of the "
        "function only, forward and backward.",
        [curves("dev perplexity", "d_k", lines, "functions-over-d_k", log=True)],
        [Table("Perplexity, rate, time and memory over d_k", shown, rows)],
    )


def _recall(recalled: Sequence[RecallRecord]) -> Section:
    """Draws NLL over the distance for each layer type."""
    lines = [
        Curve(name, [(record.distance, fmean(record.nll)) for record in recalled if record.layer_type == name])
        for name in dict.fromkeys(record.layer_type for record in recalled)
    ]
    return Section(
        "Recall at a distance",
        "Networks of one layer type are trained to recall a symbol that they saw some positions before; each is as "
        f"deep as that takes. {recalled[0].settings.updates} updates at the best of the learning rates tried, the mean "
        "over the seeds; chance is 2.08 nats.",
        [curves("NLL, nats", "positions", lines, "recall-over-distance")],
    )


def _positions(trainings: ByLength) -> Section:
    """Draws dev perplexity over the length of sentences, of which only the shorter were trained on."""
    nll: dict[str, dict[int, list[float]]] = {}
    for kind, figures in trainings:
        for part in figures.ranges:
            nll.setdefault(kind, {}).setdefault(part.up_to_tokens, []).append(part.dev_nll)
    lines = [
        Curve(kind, [(up_to, math.exp(fmean(values))) for up_to, values in of_kind.items()])
        for kind, of_kind in nll.items()
    ]
    return Section(
        "Sentences longer than those trained on",
        "Dev perplexity by length, the number of tokens on a pair's longer side: each point stands at the upper end of "
        "a range, the mean over the seeds. Those not trained on all lengths were trained on sentences of at most "
        f"{trainings[0][1].longest_trained} tokens.",
        [curves("dev perplexity by length", "tokens", lines, "perplexity-by-length", log=True)],
    )
