"""Writes the page of the claims, one HTML file: the last stage of the workflow."""

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.complexity.attention_training import AttentionTrainingFigures
from pipeline.store.artifact import Context
from workflows.claims.evidence import Evidence
from workflows.claims.layers import by_function
from workflows.claims.table import FILE, Claims, ClaimsArtifact, compute, said
from workflows.command_line import UNKNOWN, CommandLine
from workflows.engine.dag import to_artifact
from workflows.reports import page
from workflows.reports.page import Section
from workflows.reports.plots import Curve, curves


def render(claims: Claims, sections: list[Section], command: str = "") -> str:
    """Renders the page as HTML that needs nothing outside itself."""
    return page.render(
        claims,
        lead="What the paper argues, sentence by sentence: what its own figures say of it, and what was counted, timed "
        "or trained here.",
        said=said(claims),
        sections=sections,
        command=command,
    )


def judge(
    context: Context, evidence: Evidence, sections: Sequence[str] = ("",), command: CommandLine = UNKNOWN
) -> ClaimsArtifact:
    """Judges the claims of the sections that begin so, by what there is of the evidence."""
    claims = compute(evidence, sections)
    functions = [to_artifact(training).load() for training in evidence.functions]
    drawn = [_functions(functions)] * bool(functions)
    artifact = ClaimsArtifact(context.folder)
    page.write(artifact, claims, render(claims, drawn, command.typed), FILE)
    return artifact


def _functions(trainings: list[AttentionTrainingFigures]) -> Section:
    """Draws dev perplexity over d_k for each attention function."""
    lines = [
        Curve(function, [(d_k, mean) for d_k, mean in sorted(means.items())])
        for function, means in by_function(trainings).items()
    ]
    drawing: Markup = curves("dev perplexity", "d_k", lines, "functions-over-d_k", log=True)
    return Section(
        "Attention functions",
        "After equally many updates; at both ends the mean over the seeds, else one training.",
        [drawing],
    )
