"""Renders a table's report: one self-contained HTML file, to read offline, mail or print.

    page.write(context, Table2Artifact, results, lead="...", sections=[page.Section("Curves", ...)], models=cells)

A page begins with the result in one sentence, a summary of the runs, and the table. The differences from the paper and
the sections follow; settings and command come last.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from markupsafe import Markup, escape

from pipeline.context import Context
from pipeline.store.artifact import MANIFEST, Artifact
from workflows.command_line import UNKNOWN, CommandLine
from workflows.profiles.profile import GENERATED
from workflows.quantities import SCORES, duration, flop_text, rate_text, rounded
from workflows.tables.corpus import CorpusReport, collections, lengths_figure, title
from workflows.tables.corpus import facts as corpus_facts
from workflows.tables.facts import facts
from workflows.tables.measured import EMPTY, Cell, Measured, samples
from workflows.tables.plots import Curve, curves
from workflows.tables.provenance import hardware, mfu, span
from workflows.tables.render import differences_table, render_markdown, template
from workflows.tables.seeds import seeds_csv
from workflows.tables.table import NAME, Column, Results, ResultsArtifact, Row, Table, not_comparable

ResultsArtifactT = TypeVar("ResultsArtifactT", bound=ResultsArtifact)
REPORT, SEEDS = "report.html", "seeds.csv"
TITLES = {
    "loss": "training loss, nats per token",
    "dev_perplexity": "dev perplexity of single checkpoints",
    **{f"dev_{score}": f"{SCORES[score]}, dev set" for score in ("paper_bleu", "sacrebleu", "f1")},
    "learning_rate": "learning rate",
}
"""The plotted metrics of `metrics.jsonl`, or of a model's series; MLflow shows them all."""
NOTHING_RUN = "Nothing was run: the table has only the paper’s values."


@dataclass(frozen=True)
class Section:
    """A section below the table: plots, tables and samples, all optional."""

    title: str
    explanation: str = ""
    drawings: Sequence[Markup] = ()
    tables: Sequence[Table] = ()
    samples: Sequence[Mapping[str, Markup]] = ()
    """Texts to compare by name, e.g. a source, its reference and its translation."""


def write(
    context: Context,
    kind: type[ResultsArtifactT],
    results: Results,
    *,
    lead: str,
    said: str = "",
    beside: str = "",
    sections: Sequence[Section] = (),
    models: Sequence[Measured] = (),
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> ResultsArtifactT:
    """Writes a table as JSON and Markdown, its page as self-contained HTML, and `seeds.csv`; returns the artifact.

    `lead` introduces the table, `said` states the result, `beside` compares it with the paper. For generated text, what
    the run shows stands in front instead of `beside`. Empty `sections` are left out. `models` are the trained models
    behind the table, `reports` describe their training texts, and `command` is the command line that writes the page.
    """
    shown = ""
    if generated := next((model.cell.data for model in models if model.cell.data.startswith(GENERATED)), ""):
        shown, beside = f"This run shows that the pipeline works, and how fast: {_time_text(models)}. ", ""
        shown += f"Scores on {generated} are not comparable with the paper’s."
        results = replace(results, tables=[not_comparable(table, generated) for table in results.tables])
    said = " ".join(filter(None, (said, beside)))
    artifact = kind(context.folder).write(replace(results, said=" ".join(filter(None, (shown, said)))))
    (artifact.folder / f"{Path(artifact.record_file).stem}.md").write_text(render_markdown(results), encoding="utf-8")
    if models:
        (artifact.folder / SEEDS).write_text(seeds_csv(models), encoding="utf-8")
    main, *others = results.tables
    texts = [
        Section(
            f"Training text: {title(corpus)}",
            drawings=[lengths_figure(corpus)],
            tables=[collections(corpus), facts_table("", corpus_facts(corpus))],
        )
        for corpus in (report.load() for report in reports)
    ]
    libraries: dict[str, set[str]] = {}
    for name, version in chain.from_iterable(model.manifest.get("libraries", {}).items() for model in models):
        libraries.setdefault(name, set()).add(version)
    page = template("workflows.tables", "page.html.j2").render(
        shown=shown,
        lead=lead,
        said=said,
        ran=ran(models) if models else {},
        main=main,
        others=others,
        differences=differences_table(results.differences),
        notes=results.marked_notes,
        sections=[each for each in (*sections, *texts) if each.drawings or each.tables or each.samples],
        settings=[facts_table(f"{each.cell.label}, seed {each.run.settings.seed}", settings(each)) for each in models],
        libraries=", ".join(f"{name} {' and '.join(sorted(versions))}" for name, versions in libraries.items()),
        command=command.typed,
        warnings=context.warnings,
        written_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    (artifact.folder / REPORT).write_text(page, encoding="utf-8")
    return artifact


def facts_table(title: str, facts: Mapping[str, str]) -> Table:
    """Returns named facts as a table without headings."""
    rows = [Row(name, "", {"fact": fact}) for name, fact in facts.items()]
    return Table(title, (Column(NAME, ""), Column("fact", "")), rows)


def ran(models: Sequence[Measured]) -> dict[str, str]:
    """Summarizes the runs: models, data, hardware and time."""
    updates = list(map(rounded, sorted({model.run.updates for model in models})))
    sizes = [f"{parameters / 1e6:.3g}" for parameters in sorted({model.run.parameters for model in models})]
    texts = dict.fromkeys(facts(model)["training data"].text for model in models)
    count, each = f"{len(models)} model{'s' * (len(models) > 1)}", " each" * (len(models) > 1)
    return {
        "Models": f"{count} of {span(sizes[0], sizes[-1])} M parameters, {span(updates[0], updates[-1])} updates{each}",
        "Data": "; ".join(texts),
        "Hardware": "; ".join(dict.fromkeys(hardware(model.run) for model in models)),
        "Time": _time_text(models),
    }


def _time_text(models: Sequence[Measured]) -> str:
    """Returns the time of the stages behind models and of their training, and how many trained side by side."""
    ends = [(_ran(model.manifest)[1], model.run.train_s) for model in models]
    trained = [(end - train_s, end) for end, train_s in ends]  # a resumed run began before the start in its manifest
    parts = (part for model in models for part in model.cell.parts(Artifact) if (part.folder / MANIFEST).exists())
    clock_s, train_s = _clock_s([*trained, *(_ran(part.manifest) for part in parts)]), _clock_s(trained)
    at_once = max(sum(begin <= start < end for begin, end in trained) for start, _ in trained)
    what = f"{len(models)} model{'s' * (len(models) > 1)}{f', {at_once} side by side' * (at_once > 1)}"
    rate = rounded(sum(model.run.target_tokens for model in models) / train_s)
    return f"{duration(clock_s)} from text to scores, {duration(train_s)} training {what}, at {rate} target tokens/s"


def _ran(manifest: Mapping[str, Any]) -> tuple[float, float]:
    begin = datetime.fromisoformat(manifest["started"]).timestamp()
    return begin, begin + manifest["seconds"]


def _clock_s(spans: Iterable[tuple[float, float]]) -> float:
    """Returns the time that passed during some spans; what lies in several counts once."""
    passed, last = 0.0, 0.0
    for begin, end in sorted(spans):
        passed += max(0.0, end - max(begin, last))
        last = max(last, end)
    return passed


def settings(model: Measured) -> dict[str, str]:
    """Lists the facts and the measurements of a model."""
    run, cost, decoding = model.run, model.costs, model.decoding
    rate = f", {decoding.sentences / decoding.seconds:.3g} sentences/s" if decoding.seconds else ""
    return {
        **{what: fact.text for what, fact in facts(model).items()},
        "parameters": rounded(run.parameters),
        "epochs": f"{run.epochs:.3g}, {100 * run.padding_fraction:.1f}% of the tokens are padding",
        "training speed": f"{rounded(run.target_tokens / run.train_s)} target tokens/s, "
        f"{rate_text(run.counted_flop / run.train_s)}{mfu(run)}"
        + (f"; {run.data_wait_s / run.train_s:.1%} of the time waiting for data" if run.peak_memory_gb else ""),
        "peak memory": f"{run.peak_memory_gb:.3g} GB" if run.peak_memory_gb else "not recorded",
        "training cost": f"{flop_text(cost.counted_flop)} FLOP counted"
        + ("" if cost.paper_way_flop is None else f", {flop_text(cost.paper_way_flop)} by the paper’s method"),
        "decoded in": f"{decoding.dtype}{rate}",
        "dev perplexity": f"{model.dev.dev_perplexity:.3f} per word-piece",
        **model.score_texts(),
    }


def learning_curves(models: Sequence[Measured], drawings: Sequence[Markup] = ()) -> Section:
    """Returns the section of learning curves: other `drawings`, then a plot of each metric that any run has."""
    explanation = "Metrics that vary from update to update are pale, with their running mean on top."
    of_metrics = chain.from_iterable(learning_figure(models, name) for name in TITLES)
    return Section("Learning curves", explanation, [*drawings, *of_metrics])


def learning_figure(models: Sequence[Measured], name: str, title: str = "", file: str = "") -> list[Markup]:
    """Plots a metric of `metrics.jsonl` or of scored checkpoints over updates; an empty list if no run has it."""
    lines = []
    for model in models:
        logged = [(line["update"], line[name]) for line in model.metrics if name in line]
        if points := list(model.series.get(name, {}).items()) or logged:
            lines.append(Curve(model.cell.label, points))
    look = {"smooth": name == "loss", "cut": name == "dev_perplexity"}
    return [curves(title or TITLES[name], "update", lines, file or name, **look)] if lines else []


def translations(cell: Cell) -> Section:
    """Returns the section of a model's sample translations, with differing words marked."""
    of, marks = cell.test_set.load().name, "Words missing from the other side, or out of order, are marked."
    explanation = f"Sentences at regular intervals through {of}, not picked by hand. {marks}"
    shown = [
        {"source": escape(source), "reference": marked(right, found), "translation": marked(found or EMPTY, right)}
        for source, right, found in (sample.values() for sample in samples(cell))
    ]
    return Section(f"Translations, {cell.label}", explanation, samples=shown)


def marked(text: str, other: str) -> Markup:
    """Returns a sentence as HTML, marking the words that `other` lacks or has in another order."""
    a, b = text.split(), other.split()
    parts = []
    for tag, begin, end, _, _ in SequenceMatcher(a=a, b=b, autojunk=False).get_opcodes():
        if begin < end:
            shown = escape(" ".join(a[begin:end]))
            parts.append(shown if tag == "equal" else Markup("<mark>{}</mark>").format(shown))
    return Markup(" ").join(parts)
