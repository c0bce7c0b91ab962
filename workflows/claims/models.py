"""Judges what §5.4 and §6 argue of trained models, and what the captions of Figures 3 to 5 say of their heads."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from pipeline.attention.figures import HeadFigures, RelationFigures, RelationName
from pipeline.evaluation.search_choice import DecodingChoiceFigures
from workflows import paper
from workflows.claims import sentences
from workflows.claims.judged import Difference, Judged, Verdict, verdict
from workflows.quantities import flop_text, percent
from workflows.tables import orderings
from workflows.tables.orderings import KIND_NAMES, Noise
from workflows.tables.table import Results, Value
from workflows.tables.table2 import MEASURED_NAMES
from workflows.tables.table2 import is_of_other_text as is_table_of_other_text
from workflows.tables.table3 import standings
from workflows.tables.table4 import SEARCHES

ANSWERS: Mapping[Value, Verdict] = {"yes": "holds", "no": "fails", "within noise": "within noise"}
ENSEMBLE, TRANSFORMER, WSJ_ONLY = "ensemble", "Transformer", "WSJ only, discriminative"
MAX_REPAIRED = 0.05
"""The share of outputs that are no tree up to which a parser has learned what a tree is."""
MIN_WEIGHT = 0.5
"""The share of a head's attention on a word from which it is sharp, or on a position from which that is its task."""
POSITIONS = ("previous", "same", "next", "separator")


def of_table2(table: Results | None, *, is_of_other_text: bool = False) -> dict[str, Judged]:
    """Judges the comparisons with models before (§6.1): printed figures, and those here where the text is WMT's."""
    is_of_other_text = is_of_other_text or bool(table and is_table_of_other_text(table))
    judged = {}
    for key, model, pair, check in COMPARISONS:
        name = MEASURED_NAMES[model]
        (printed,) = (row for row in paper.TABLE_2 if row.name == name)
        found = check(float(printed.bleu[pair]), printed.cost_flop[pair])
        in_paper = f"{'yes' if found[0] else 'no'}: {found[1]}" if found else ""
        rows = [row for row in (table.tables[0].rows if table else ()) if (row.origin, row.name) == ("measured", name)]
        bleu, cost = (rows[0].number(f"{pair}.{of}") if rows else None for of in ("paper_bleu", "paper_way_flop"))
        judged[key] = _compared(bleu, cost, check, in_paper, is_of_other_text=is_of_other_text)
    return judged


Check = Callable[[float, float | None], tuple[bool, str] | None]
"""Takes BLEU and cost by the paper's method; returns whether the claim holds for them, and the comparison in words.

None where the claim is about cost and there is none."""


def _compared(bleu: float | None, cost: float | None, check: Check, in_paper: str, *, is_of_other_text: bool) -> Judged:
    if is_of_other_text:
        return Judged("not measurable here", "measured on other text", in_paper)
    if bleu is None:
        return Judged("not run", "", in_paper)
    found = check(bleu, cost)
    if found is None:
        return Judged("not measurable here", "no cost by the paper's method on CPUs", in_paper)
    holds, here = found
    return Judged(verdict(holds), here, in_paper, seeds=1)


def _before(pair: str, *, single: bool = False) -> list[paper.PrintedRow]:
    """Returns the rows of Table 2 that are not the Transformer's; ensembles, too, unless only `single` models count."""
    others = [row for row in paper.TABLE_2 if not row.name.startswith(TRANSFORMER) and pair in row.bleu]
    return [row for row in others if not (single and ENSEMBLE in row.name)]


def _better(pair: str, *, by: float = 0.0, single: bool = False) -> Check:
    best = max(float(row.bleu[pair]) for row in _before(pair, single=single))
    return lambda bleu, _cost: (bleu - best > by, f"{bleu:g} − {best:g} = {bleu - best:+.2f}")


def _cheaper_than_any(pair: str) -> Check:
    return _cheaper(min(row.cost_flop[pair] for row in _before(pair) if pair in row.cost_flop))


def _cheaper_than_best(pair: str, fraction: float) -> Check:
    return _cheaper(max(_before(pair, single=True), key=lambda row: float(row.bleu[pair])).cost_flop[pair], fraction)


def _cheaper(flop: float, fraction: float = 1.0) -> Check:
    def check(_bleu: float, cost: float | None) -> tuple[bool, str] | None:
        if cost is None:
            return None
        return cost < fraction * flop, f"{flop_text(cost)} / {flop_text(flop)} = {cost / flop:.2f}"

    return check


COMPARISONS: tuple[tuple[str, str, str, Check], ...] = (
    ("record en-de", "big", "en-de", _better("en-de", by=sentences.RECORD_BLEU)),
    ("base", "base", "en-de", _better("en-de")),
    ("base cost", "base", "en-de", _cheaper_than_any("en-de")),
    ("record en-fr", "big", "en-fr", _better("en-fr", single=True)),
    ("cost en-fr", "big", "en-fr", _cheaper_than_best("en-fr", sentences.COST_FRACTION)),
)
"""Claims of §6.1 by key, with the model and the language pair that they are about."""


def of_averaging(trainings: Sequence[tuple[float, DecodingChoiceFigures]]) -> dict[str, Judged]:
    """Judges averaging and the search's settings (§6.1) by BLEU on the dev set.

    Of each training, with its own seed, that of the last checkpoint and that of the average over a grid of searches.
    """
    if len(trainings) < 2:  # no noise to hold it against
        return {}
    grids = [{(point.beam_size, point.length_penalty): point.deciding[1] for point in c.scores} for _, c in trainings]
    printed = paper.Experiment.beam_size, paper.Experiment.length_penalty
    gained = Difference.over([grid[printed] - last for (last, _), grid in zip(trainings, grids, strict=True)])
    means = {point: statistics.fmean(grid[point] for grid in grids) for point in grids[0]}
    judged = {"averaging": Judged(gained.verdict(), f"{gained.text()} BLEU on the dev set", seeds=len(trainings))}
    if others := [search for search in means if search != printed]:
        rival = max(others, key=means.__getitem__)
        lost = Difference.over([grid[rival] - grid[printed] for grid in grids])
        here = (
            f"{means[printed]:.2f} BLEU on the dev set; best of {len(others)} others: {means[rival]:.2f}, with beam "
            f"{rival[0]} and α = {rival[1]:g} ({lost.text()})"
        )
        judged["beam"] = Judged(lost.at_most(0.0), here, seeds=len(trainings))
    return judged


def of_table3(table: Results | None) -> Iterator[tuple[str, str, Judged]]:
    """Yields the claims about the order of Table 3's rows, with section and text: each by perplexity and by BLEU."""
    answers = {row.name: row.values for claims in (table.tables[1:] if table else ()) for row in claims.rows}
    trained = standings(table.tables[0]) if table else {}
    for ordering in paper.ORDERINGS:
        answer = answers.get(ordering.claim)
        rows = orderings.rows_of(ordering, [name for name in trained if name in paper.VARIATIONS])[-6:]
        judged_by = {name: trained[name] for name in rows if name in trained}
        for kind in paper.KINDS:
            text = f"{ordering.claim}, by {KIND_NAMES[kind]}"
            if answer is None:
                yield ordering.section, text, Judged("not run", "")
                continue
            here = ", ".join(f"{name} {row.figures[kind]:.2f}" for name, row in judged_by.items())
            seeds = min((row.seeds for row in judged_by.values()), default=None)
            judged = ANSWERS.get(answer[f"{kind}.here"], "not run")
            yield ordering.section, text, Judged(judged, here, str(answer[f"{kind}.paper"]), seeds)


def of_one_head(table: Results) -> dict[str, Judged]:
    """Judges by how much one head is worse than the best number of heads, beside the noise between seeds (§6.2)."""
    main = table.tables[0]
    heads = standings(main)
    others = {name: row.figures["bleu"] for name, row in heads.items() if name in ("base", "A2", "A3", "A4")}
    deviation = next((row.number("bleu.deviation") for row in main.rows if row.name == "base"), None)
    if deviation is None or "A1" not in heads or not others:
        return {}
    best = max(others, key=others.__getitem__)
    single, several = heads["A1"], heads[best]
    lost = others[best] - single.figures["bleu"]
    limit = Noise(heads["base"].seeds, {"bleu": deviation}).limit("bleu", single.seeds, several.seeds)
    size = sentences.ONE_HEAD_BLEU
    here = f"{best} − A1 = {lost:+.2f} ± {limit:.2f} BLEU; {size} is {'in' if abs(lost - size) <= limit else 'out'}side"
    judged: Verdict = "within noise" if abs(lost) <= limit else verdict(lost > 0)
    return {"one head": Judged(judged, here, f"{size} BLEU", min(single.seeds, several.seeds))}


def of_table4(table: Results | None, lengths: Sequence[tuple[int, int]]) -> dict[str, Judged]:
    """Judges the parser (§6.3); `lengths` are those of the sentences and trees of its test set, in tokens."""
    printed = _margins({row.training: float(row.f1) for row in paper.TABLE_4 if row.name.startswith(TRANSFORMER)})
    in_paper = {key: f"{'yes' if margin > 0 else 'no'}: {margin:+.1f} F1" for key, margin in printed.items()}
    rows = table.tables[0].rows if table else []
    scored = {
        str(row.values["training"]): f1
        for row in rows
        if row.origin == "measured" and row.name.startswith(TRANSFORMER) and (f1 := row.number("f1")) is not None
    }
    if table is None or not scored:
        return {key: Judged("not run", "", text) for key, text in in_paper.items()}
    if WSJ_ONLY in scored:
        judged = {
            key: Judged(verdict(margin > 0), f"{margin:+.1f} F1", in_paper[key], 1)
            for key, margin in _margins(scored).items()
        }
    else:
        other = "; ".join(f"F1 {f1:.1f}, trained on {training}" for training, f1 in scored.items())
        judged = {key: Judged("not measurable here", other, text) for key, text in in_paper.items()}
    ratio = sum(tree for _, tree in lengths) / sum(sentence for sentence, _ in lengths)
    longer = sum(tree > sentence for sentence, tree in lengths) / len(lengths)
    judged["longer"] = Judged(
        verdict(longer > 0.5), f"{ratio:.1f} × as long in tokens; longer in {percent(longer)} of the sentences"
    )
    searched = {
        row.values["search"]: [row.number(key) or 0.0 for key in ("f1", "repaired", "sentences")]
        for other in table.tables
        for row in other.rows
        if other.title == SEARCHES and row.name in scored
    }
    if "free" in searched:
        f1, repaired, n = searched["free"]
        here = f"{repaired:.0f} of {n:.0f} outputs were no tree; F1 {f1:.1f}"
        if "constrained" in searched:
            here += f", {searched['constrained'][0]:.1f} where only trees are searched"
        judged["constraints"] = Judged(verdict(repaired <= MAX_REPAIRED * n), here, seeds=1)
    return judged


def _margins(f1: Mapping[str, float]) -> dict[str, float]:
    """Returns by how much F1, by training, exceeds BerkeleyParser's, and the best but the RNN Grammar's, by claim.

    A parser that was trained on WSJ only is compared with parsers that were, too; any other with all that had more.
    """
    others = [row for row in paper.TABLE_4 if not row.name.startswith(TRANSFORMER)]
    berkeley = next(float(row.f1) for row in others if row.name == sentences.BERKELEY_PARSER)
    margins = [
        score - float(row.f1)
        for training, score in f1.items()
        for row in others
        if (row.training == WSJ_ONLY) == (training == WSJ_ONLY) and row.name != sentences.RNN_GRAMMAR
    ]
    return {
        "berkeley": f1[WSJ_ONLY] - berkeley,
        "all but one": min(margins),
    }


def of_heads(relations: Sequence[RelationFigures], heads: Sequence[HeadFigures]) -> dict[str, Judged]:
    """Judges the captions of Figures 3 to 5 by the heads of one model, each relation by the head that knows it best."""
    by_name = {relation.relation: relation for relation in relations}
    judged = {}
    captions: dict[str, RelationName] = {"distant": "verb to distant object", "anaphora": "pronoun to antecedent"}
    for key, name in captions.items():
        if relation := by_name.get(name):
            judged[key] = _relation(relation)
    if pronoun := by_name.get(captions["anaphora"]):
        best = (pronoun.best_layer, pronoun.best_head)
        weight = next(head.weight for head in pronoun.heads if (head.layer, head.head) == best)
        judged["sharp"] = Judged(
            verdict(weight >= MIN_WEIGHT),
            f"{percent(weight)} of the best head's attention is on the antecedent",
            seeds=1,
        )
    tasks: dict[str, int] = {}
    for head in (head for head in heads if head.kind == "encoder"):
        task = max(POSITIONS, key=lambda position: getattr(head, position))
        if getattr(head, task) < MIN_WEIGHT:
            task = "spread out"
        tasks[task] = tasks.get(task, 0) + 1
    if tasks:
        counted = ", ".join(f"{number} {task}" for task, number in tasks.items())
        judged["tasks"] = Judged(
            verdict(len(tasks) > 1), f"the encoder's heads by where half of it goes: {counted}", seeds=1
        )
    return judged


def _relation(relation: RelationFigures) -> Judged:
    """Compares the best head with the best fixed offset and with chance: it must know more than where to look."""
    low, high = relation.best_interval
    without = max(relation.offset_share, relation.chance)
    judged: Verdict = "holds" if low > without else "fails" if high < without else "within noise"
    here = (
        f"layer {relation.best_layer} head {relation.best_head}: right in {percent(relation.best_share)} "
        f"({100 * low:.0f} to {100 * high:.0f}); best fixed offset {percent(relation.offset_share)}, "
        f"chance {percent(relation.chance)}"
    )
    return Judged(judged, here, seeds=1)
