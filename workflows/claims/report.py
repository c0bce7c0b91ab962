"""Writes the page of the claims, one HTML file: the last stage of the workflow."""

from collections.abc import Sequence

from pipeline.complexity.attention_training import AttentionTrainingFigures
from pipeline.complexity.figures import ArgumentTimes
from pipeline.evaluation.perplexity import LengthPerplexityFigures
from pipeline.store.artifact import Context
from workflows.claims.evidence import Evidence
from workflows.claims.layers import by_function, by_length
from workflows.claims.table import FILE, Claims, ClaimsArtifact, compute, lengths_of, said
from workflows.command_line import UNKNOWN, CommandLine
from workflows.engine.dag import to_artifact
from workflows.reports import page
from workflows.reports.page import Section
from workflows.reports.plots import Curve, curves
from workflows.tables.table import NAME, Column, Table, columns, in_order


def render(claims: Claims, sections: list[Section], command: str = "", warnings: Sequence[str] = ()) -> str:
    """Renders the page as HTML that needs nothing outside itself."""
    return page.render(
        claims,
        lead="What the paper argues, sentence by sentence: what its own figures say of it, and what was counted, timed "
        "or trained here.",
        said=said(claims),
        sections=sections,
        command=command,
        warnings=warnings,
    )


def judge(
    context: Context, evidence: Evidence, sections: Sequence[str] = ("",), command: CommandLine = UNKNOWN
) -> ClaimsArtifact:
    """Judges the claims of the sections that begin so, by what there is of the evidence."""
    claims, drawn = compute(evidence, sections), []
    if evidence.functions and evidence.timed:
        trainings = [to_artifact(training).load() for training in evidence.functions]
        drawn.append(_functions(trainings, to_artifact(evidence.timed).load()))
    if evidence.extrapolation:
        drawn.append(_positions(lengths_of(evidence)))
    artifact = ClaimsArtifact(context.folder)
    page.write(artifact, claims, render(claims, drawn, command.typed, context.warnings), FILE)
    return artifact


def _functions(trainings: list[AttentionTrainingFigures], times: ArgumentTimes) -> Section:
    """Shows dev perplexity over d_k for each attention function, with the time and memory that it takes by itself."""
    means = by_function(trainings)
    lines = [Curve(function, sorted(of_function.items())) for function, of_function in means.items()]
    shown = [Column(NAME, "d_k")]
    for function in means:
        shown += columns("perplexity", "ms", block=function, spec=".2f", is_measured=True)
        shown += columns("MB", block=function, spec=".1f", is_measured=True)
    rows = []
    for d_k in sorted({training.d_k for training in trainings}):
        values = []
        for function, of_function in means.items():
            timed = times.functions[function][d_k]
            values += [of_function[d_k], 1e3 * timed.median_s, timed.peak_bytes / 1e6]
        rows.append(in_order(shown, f"{d_k}", *values))
    settings = times.settings
    return Section(
        "Attention functions",
        f"Dev perplexity after {trainings[0].updates:,} updates, the mean over the seeds. Time and peak memory are "
        "those of the function alone, forward and backward, "
        f"{settings.attention_heads} heads over {settings.attention_length} positions, {times.timing.batch} at once.",
        [curves("dev perplexity", "d_k", lines, "functions-over-d_k", log=True)],
        [Table("Perplexity, time and memory over d_k", shown, rows)],
    )


def _positions(trainings: Sequence[tuple[str, int, LengthPerplexityFigures]]) -> Section:
    """Draws dev perplexity over the length of sentences, of which only the shorter were trained on."""
    lines = [Curve(name, [*of_name.items()]) for name, of_name in by_length(trainings).items()]
    return Section(
        "Sentences longer than those trained on",
        "Dev perplexity by length, the number of tokens on a pair's longer side: each point stands at the upper end of "
        "a range, the mean over the seeds. Those not trained on all lengths were trained on sentences of at most "
        f"{trainings[0][2].longest_trained} tokens.",
        [curves("dev perplexity by length", "tokens", lines, "perplexity-by-length", log=True)],
    )
