"""Table 2 (§6.1) and its page: BLEU and training cost, the paper's rows above the measured rows.

    python -m workflows.reproduce_table2

Measured numbers come from artifacts' files, and are means over the seeds of a model; cells that failed or were not run
say so.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise, product
from statistics import fmean, stdev
from types import MappingProxyType

from markupsafe import Markup

from pipeline.context import Context
from pipeline.evaluation.search_choice import DecodingChoiceRecord
from pipeline.records import ScoringRecord
from pipeline.text.lines import read_lines
from workflows import paper
from workflows.command_line import UNKNOWN, CommandLine
from workflows.quantities import SCORES, key
from workflows.tables import page
from workflows.tables.corpus import CorpusReport
from workflows.tables.differences import differences
from workflows.tables.measured import Cell, Measured, measured
from workflows.tables.plots import Curve, curves
from workflows.tables.provenance import rate_notes, reading_notes, seeds_text
from workflows.tables.table import MILLION, NAME, Column, Missing, Results, ResultsArtifact, Row, Table, Value

MEASURED_NAMES = {
    **paper.TRANSFORMERS,
    "recurrent": "Recurrent (GNMT-like)",
    "convolutional": "Convolutional (ConvS2S-like)",
    "long": "Transformer (base, long)",
}
WORD_BY_WORD = "word-by-word"
BLEU, FURTHER = ("paper_bleu", "sacrebleu"), ("lowercased", "chrf")
COSTS = {"paper_way_flop": "FLOP, paper's", "counted_flop": "FLOP, counted"}
"""Headings by key."""
DIFFERENCE = (("difference", "Δ", "+.2f"), ("interval", "95% interval", ""), ("p", "p", ".3f"))
"""Keys, headings and formats."""
NONE_FAILED: Mapping[str, str] = MappingProxyType({})
Cells = Mapping[tuple[str, str], Sequence[Measured]]
"""The trained models by language pair and model, one a seed."""


class Table2Artifact(ResultsArtifact):
    """`table2.json`, `table2.md` and `report.html`."""

    record_file = "table2.json"


def tabulate(
    context: Context,
    cells: list[Cell],
    failures: Mapping[str, str] = NONE_FAILED,
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> Table2Artifact:
    """Writes Table 2 with the `cells` that were run; others show why they failed.

    `failures` maps failed cells (`en-de base`) to reasons; `reports` are the corpus reports, one per language pair.
    """
    models = [measured(cell) for cell in cells]
    results = compute(models, failures)
    firsts = [first.cell for first, *_ in by_cell(models).values()]
    return page.write(
        context,
        Table2Artifact,
        results,
        lead="BLEU is in percent. Training cost is in FLOP, by the paper’s method and by counting.",
        said=said(results.metrics),
        sections=[page.learning_curves(models, over_budgets(models)), *map(page.translations, firsts)],
        models=models,
        reports=reports,
        command=command,
    )


def by_cell(models: Sequence[Measured]) -> dict[tuple[str, str], list[Measured]]:
    """Groups trained models by language pair and model."""
    cells: dict[tuple[str, str], list[Measured]] = {}
    for model in models:
        cells.setdefault((model.cell.pair, model.cell.model), []).append(model)
    return cells


def compute(models: Sequence[Measured], failures: Mapping[str, str] = NONE_FAILED) -> Results:
    """Computes the table; `failures` maps cells to reasons. Only what was run or failed has rows and columns."""
    cells = by_cell(models)
    run = dict.fromkeys([*(pair for pair, _ in cells), *(cell.partition(" ")[0] for cell in failures)])
    pairs = [*(pair for pair in paper.PAIRS if pair in run), *(pair for pair in run if pair not in paper.PAIRS)]
    has_seeds = len(models) > len(cells)
    columns = [
        Column(NAME, "model"),
        *(
            Column(of := key(score, pair), SCORES[score], pair.upper(), ".2f", spread=f"{of}.deviation" * has_seeds)
            for pair, score in product(pairs, BLEU)
        ),
        *(Column(key(cost, pair), COSTS[cost], pair.upper(), unit="FLOP") for pair, cost in product(pairs, COSTS)),
    ]
    rows = [_printed(row, run) for row in paper.TABLE_2 if not run.keys().isdisjoint(row.bleu)]
    rows += [*_word_by_word(models), *_models(cells, pairs, failures)]
    choices = {labelled(model, cells): model.choice for model in models if model.choice}
    further = (*_measured_models(cells, has_seeds), *model_differences(cells), *chosen_searches(choices))
    found = differences([first for first, *_ in cells.values()])
    texts = [f"{each.paper} (printed); {each.here} (measured)" for each in found if each.what == "test set"]
    main = Table("Table 2", columns, rows, " ".join(f"Scores are not comparable: {each}." for each in texts))
    return Results([main, *further], found, _notes(models, cells, pairs, failures), _metrics(cells))


def labelled(model: Measured, cells: Cells) -> str:
    """Returns a cell's label, with its seed if there are several."""
    has_seeds = len(cells[model.cell.pair, model.cell.model]) > 1
    return f"{model.cell.label}, seed {model.run.settings.seed}" if has_seeds else model.cell.label


def over_seeds(name: str, values: Sequence[float]) -> dict[str, Value]:
    """Returns the mean of a value over seeds and, if there are several, the standard deviation."""
    return {name: fmean(values), **({f"{name}.deviation": stdev(values)} if len(values) > 1 else {})}


def _measured_models(cells: Cells, has_seeds: bool) -> Iterator[Table]:
    """Yields a table of the further measurements of each model, if there are any."""
    rows = []
    for of_cell in cells.values():
        values: dict[str, Value] = {
            "parameters": of_cell[0].run.parameters,
            "train_s": fmean(model.run.train_s for model in of_cell),
            "tokens_s": fmean(model.run.target_tokens / model.run.train_s for model in of_cell),
            **over_seeds("dev_nll", [model.dev.dev_nll for model in of_cell]),
        }
        values |= _scores([model.main for model in of_cell], {name: name for name in FURTHER}, Missing.NOT_MEASURED)
        rows.append(Row(of_cell[0].cell.label, "measured", values))
    columns = [
        Column(NAME, "model"),
        Column("parameters", "parameters, M", "training", spec=".2f", unit=MILLION),
        Column("train_s", "time", "training", unit="s"),
        Column("tokens_s", "target tokens/s", "training", spec=",.0f"),
        Column("dev_nll", "dev NLL", "quality", spec=".3f", spread="dev_nll.deviation" * has_seeds),
        *(Column(name, SCORES[name], "quality", ".2f", spread=f"{name}.deviation" * has_seeds) for name in FURTHER),
    ]
    if rows:
        explanation = (
            "Dev NLL: nats a target token, unsmoothed, of the averaged weights; curves have single checkpoints. "
            "The other scores are of the test set; lower-cased means sacreBLEU of lower-cased lines."
        )
        yield Table("Models", columns, rows, explanation)


def model_differences(cells: Cells) -> Iterator[Table]:
    """Yields a table of the differences between neighbours in the table on their test set, if there are any."""
    from pipeline.evaluation.significance import compared  # sacreBLEU is slow to import

    columns, rows = [Column(NAME, "models"), Column("seeds", "seeds")], []
    for score, (part, heading, spec) in product(BLEU, DIFFERENCE):
        columns.append(Column(key(part, score), heading, SCORES[score], spec))
    for pair in dict.fromkeys(pair for pair, _ in cells):
        for first, second in pairwise(cells[pair, model] for model in MEASURED_NAMES if (pair, model) in cells):
            text = first[0].cell.test_set
            lines = [[[*read_lines(each.cell.hypotheses.path(text))] for each in seeds] for seeds in (first, second)]
            tests = compared(lines, [[*read_lines(text.references)]], first[0].main.language, bleu_only=True)
            lacking = Missing.NOT_DEFINED if tests else Missing.NOT_MEASURED
            values: dict[str, Value] = {column.key: lacking for column in columns[2:]}
            for score, test in tests.items():
                values |= {key("difference", score): test.difference, key("p", score): test.p}
                values[key("interval", score)] = test.interval_text
            values["seeds"] = f"{len(second)} and {len(first)}"
            rows.append(Row(f"{second[0].cell.label} − {first[0].cell.model}", "", values))
    if rows:
        explanation = (
            "By paired bootstrap over sentences and seeds: a small p says that other such sentences would "
            "show the difference. A few seeds say little of others: aiayn claims judges with trained models as units."
        )
        yield Table("Differences between models", columns, rows, explanation)


def baselines(models: Sequence[Measured]) -> dict[str, ScoringRecord]:
    """Returns the scores of word-by-word substitution by language pair, if any."""
    return {model.cell.pair: scores for model in models if (scores := model.baseline)}


def chosen_searches(choices: Mapping[str, DecodingChoiceRecord]) -> Iterator[Table]:
    """Yields a table of the searches' scores on the dev set: one row per beam, one column per α."""
    penalties = sorted({search.length_penalty for choice in choices.values() for search in choice.scores})
    rows = []
    for label, choice in choices.items():
        best = choice.best
        for beam_size, searches in groupby(choice.scores, key=lambda search: search.beam_size):
            values: dict[str, Value] = {f"α {search.length_penalty:g}": search.deciding[1] for search in searches}
            if beam_size == best.beam_size:
                values["chosen"] = f"beam {beam_size}, α {best.length_penalty:g}"
            rows.append(Row(label, "", {"beam": beam_size, **values}))
    if rows:
        scores = (Column(f"α {penalty:g}", f"α {penalty:g}", spec=".2f") for penalty in penalties)
        columns = [Column(NAME, "model"), Column("beam", "beam", spec="d"), *scores, Column("chosen", "chosen")]
        explanation = "Moses BLEU on the dev set, or sacreBLEU if undefined. Test sets: decoded with the chosen search."
        yield Table("Chosen on the dev set: beam and α", columns, rows, explanation)


def _printed(row: paper.PrintedRow, pairs: Collection[str]) -> Row:
    scores = {key("paper_bleu", pair): bleu for pair, bleu in row.bleu.items()}
    costs = {key("paper_way_flop", pair): flop for pair, flop in row.cost_flop.items()}
    digits = {name: len(bleu.partition(".")[2]) for name, bleu in scores.items()}
    values = {name: float(bleu) for name, bleu in scores.items()}
    footnote = row.footnote * (row.footnote.partition(" ")[0].lower() in pairs)  # it begins with its pair
    return Row(row.name, "paper", values | costs, digits, footnote=footnote)


def _word_by_word(models: Sequence[Measured]) -> Iterator[Row]:
    values: dict[str, Value] = {}
    for pair, scores in baselines(models).items():
        values |= _scores([scores], {name: key(name, pair) for name in BLEU})
    if values:
        yield Row(f"{WORD_BY_WORD} substitution", "measured", values)


def _models(cells: Cells, pairs: Sequence[str], failures: Mapping[str, str]) -> Iterator[Row]:
    for model, name in MEASURED_NAMES.items():
        if failures.keys().isdisjoint(f"{pair} {model}" for pair in pairs) and not any(
            of_cell == model for _, of_cell in cells
        ):
            continue
        values: dict[str, Value] = {}
        for pair in pairs:
            state = Missing.FAILED if f"{pair} {model}" in failures else Missing.NOT_RUN
            values |= {key(number, pair): state for number in (*BLEU, *COSTS)}
            if of_cell := cells.get((pair, model)):
                costs = [model.costs for model in of_cell]
                in_paper_way = [cost.paper_way_flop for cost in costs if cost.paper_way_flop is not None]
                values |= _scores([model.main for model in of_cell], {name: key(name, pair) for name in BLEU}) | {
                    key("paper_way_flop", pair): fmean(in_paper_way) if in_paper_way else Missing.NOT_MEASURED,
                    key("counted_flop", pair): fmean(cost.counted_flop for cost in costs),
                }
        yield Row(name, "measured", values)


def _scores(
    scores: Sequence[ScoringRecord], keys: Mapping[str, str], lacking: Missing = Missing.NOT_DEFINED
) -> dict[str, Value]:
    """Returns scores over seeds; `keys` maps their names in the artifacts' files to those in the table."""
    values: dict[str, Value] = {}
    for name, of in keys.items():
        known = [score for each in scores if (score := getattr(each, name)) is not None]
        values |= over_seeds(of, known) if len(known) == len(scores) else {of: lacking}
    return values


def _metrics(cells: Cells) -> dict[str, float]:
    """Returns Moses BLEU of each measured cell, else sacreBLEU, e.g. {"paper_bleu.EN-DE base": 27.3, ...}."""
    metrics = {}
    for of_cell in cells.values():
        metrics[key(of_cell[0].main.deciding[0], of_cell[0].cell.label)] = fmean(
            model.main.deciding[1] for model in of_cell
        )
    for pair, scores in baselines([model for of_cell in cells.values() for model in of_cell]).items():
        metrics[key(scores.deciding[0], f"{pair.upper()} {WORD_BY_WORD}")] = scores.deciding[1]
    return metrics


def _notes(models: Sequence[Measured], cells: Cells, pairs: Collection[str], failures: Mapping[str, str]) -> list[str]:
    """Explains how to read scores and costs, and lists the measured sustained rates and the other test sets."""
    once = "; variation between seeds was not measured" * (len(models) == len(cells))
    failed = ((cell.split(" "), why) for cell, why in failures.items())
    return [
        *(f"{pair.upper()} {model} failed: {why}" for (pair, model), why in failed),
        *reading_notes(models),
        f"Each measured cell is {seeds_text(cells.values())}{once}.",
        "Training cost by the paper's method is training time × devices × sustained rate (§6.1), summed over segments "
        "if a run changed devices. The paper's devices are rated in single precision, other devices in the dtype of "
        "the run. Counted cost is the number of operations in the model's matrix products.",
        *rate_notes(models),
        *[paper.ONE_COST_NOTE] * ({*paper.PAIRS} <= {*pairs}),
        *(
            f"{labelled(model, cells)} on {name}: {scores.text}."
            for model in models
            for name, scores in model.bleu.items()
            if name != model.test_set.name
        ),
    ]


def said(metrics: Mapping[str, float]) -> str:
    """States the table's metrics in a sentence."""
    reached = []
    for score in BLEU:
        listed = [f"{name.partition('.')[2]} {bleu:.1f}" for name, bleu in metrics.items() if name.startswith(score)]
        reached += [f"{SCORES[score]}: {', '.join(listed)}"] * bool(listed)
    return f"Measured {'; '.join(reached)}." if reached else page.NOTHING_RUN


def over_budgets(models: Sequence[Measured]) -> list[Markup]:
    """Plots dev NLL over seconds and FLOP, and scored checkpoints' BLEU over seconds, if there are several models."""
    if len({model.cell.model for model in models}) < 2:
        return []
    seconds, operations, scored = [], [], []
    for model in models:
        label, per_update = model.cell.label, model.run.counted_flop / model.run.updates
        nll = [(line["train_s"], line["update"], line["dev_nll"]) for line in model.metrics if "dev_nll" in line]
        seconds.append(Curve(label, [(train_s, dev_nll) for train_s, _, dev_nll in nll]))
        operations.append(Curve(label, [(update * per_update, dev_nll) for _, update, dev_nll in nll]))
        if series := model.series.get("dev_sacrebleu"):
            after = [(line["update"], line["train_s"]) for line in model.metrics]
            reached_s = {update: next(s for at, s in after if at >= update) for update in series}
            scored.append(Curve(label, [(reached_s[update], bleu) for update, bleu in series.items()]))
    title, passed = "dev NLL of single checkpoints, nats per token", "seconds of training"
    drawings = [curves(f"{title}, over time", passed, seconds, "dev-nll-over-seconds-of-training", cut=True)]
    drawings += [curves(f"{title}, over FLOP", "FLOP", operations, "dev-nll-over-flop", cut=True)]
    if scored:
        drawings.append(curves(page.TITLES["dev_sacrebleu"], passed, scored, "dev-sacrebleu-over-seconds-of-training"))
    return drawings
