"""The claims that rest on translators trained beside the tables: averaging and search, positions, heads."""

from collections.abc import Callable, Sequence

from pipeline.attention.figures import RelationFigures, RelationName
from pipeline.evaluation.perplexity import LengthPerplexityFigures
from pipeline.evaluation.search_choice import DecodingChoiceFigures
from workflows import paper
from workflows.claims.claim import Claim, Effect, Finding
from workflows.claims.inference import POSITIVE, Estimate, Groups, Region, at_most, best_of_paired, paired
from workflows.claims.variations import MARGIN_BLEU, MARGIN_NATS

Averaged = Sequence[tuple[float, DecodingChoiceFigures]]
"""Of each training, BLEU of its last checkpoint, and that of its average by search, on the dev set."""
ByLength = Sequence[tuple[str, LengthPerplexityFigures]]
"""Of each training, which of `KINDS` it is and what was measured."""
Related = Sequence[Sequence[RelationFigures]]
"""Of each model, the relations that its heads know."""
KINDS = SINUSOIDS, LEARNED, ALL_LENGTHS = "sinusoids", "learned positions", "sinusoids trained on all lengths"
"""The trainings that tell whether positions extrapolate."""
AT_WORK = Region(low=0.5)
"""A head is sharp where more than half of its attention is on one word."""
MULTI30K = "python -m workflows.reproduce_claims --profile multi30k"
PAPER_SEARCH = paper.Experiment.beam_size, paper.Experiment.length_penalty


def _by_search(averaged: Averaged) -> list[dict[tuple[int, float], float]]:
    return [{(each.beam_size, each.length_penalty): each.deciding[1] for each in grid.scores} for _, grid in averaged]


def _averaging(averaged: Averaged) -> Finding:
    """Judges whether the average is at least as good as the last checkpoint, within the margin."""
    region = Region(low=-MARGIN_BLEU)
    gains = [grid[PAPER_SEARCH] - last for (last, _), grid in zip(averaged, _by_search(averaged), strict=True)]
    return _of("average − last checkpoint", "BLEU", paired(gains, region), region)


def _search(averaged: Averaged) -> Finding | None:
    """Judges whether no other search is better than the paper's by more than the margin: the choice costs nothing."""
    grids, region = _by_search(averaged), at_most(MARGIN_BLEU)
    rivals = [search for search in grids[0] if search != PAPER_SEARCH]
    if not rivals:
        return None
    tested = best_of_paired([[grid[rival] - grid[PAPER_SEARCH] for grid in grids] for rival in rivals], region)
    return _of(f"best of {len(rivals)} other searches − beam 4, α 0.6", "BLEU", tested, region)


def _of(text: str, unit: str, tested: Estimate, region: Region, here: str = "") -> Finding:
    return Finding(tested.p_holds, tested.p_fails, [Effect.of(text, unit, tested, region)], here)


def _extrapolation(trainings: ByLength) -> Finding | None:
    """Judges whether, on longer sentences, sinusoids are as good as after training on such sentences, too."""
    values: dict[str, list[float]] = {}
    for kind, figures in trainings:
        if figures.longer:
            values.setdefault(kind, []).append(-figures.longer.dev_nll)
    longer = trainings[0][1].longer
    if not set(KINDS) <= values.keys() or longer is None:
        return None
    groups, region = Groups(values), at_most(MARGIN_NATS)
    tested = groups.difference(ALL_LENGTHS, SINUSOIDS, region)
    learned = groups.difference(SINUSOIDS, LEARNED, POSITIVE)
    effects = (
        Effect.of("trained on short sentences, behind all lengths", "nats", tested, region),
        Effect.of("learned positions behind sinusoids", "nats", learned, POSITIVE),
    )
    here = (
        f"on sentences beyond {trainings[0][1].longest_trained} tokens ({longer.tokens:,} target tokens); learned "
        "positions beyond that length have not been trained at all"
    )
    return Finding(tested.p_holds, tested.p_fails, effects, here)


def _knows(name: RelationName) -> Callable[[Related], Finding | None]:
    """Judges whether the best head of a model finds the right word more often than a fixed offset and chance do."""

    def judge(models: Related) -> Finding | None:
        found = [relation for relations in models for relation in relations if relation.relation == name]
        if not found:
            return None
        gains = [each.best_share - max(each.offset_share, each.chance) for each in found]
        here = ", ".join(f"{100 * each.best_share:.0f}" for each in found)
        return _of(
            f"{name}: share right, over offset and chance",
            "share",
            paired(gains, POSITIVE),
            POSITIVE,
            f"the best head of each model is right in {here} % of {found[0].cases} cases",
        )

    return judge


def _sharp(models: Related) -> Finding | None:
    """Judges whether the head that finds antecedents has more than half of its attention on one word."""
    weights = []
    for relations in models:
        for relation in relations:
            best = [
                each for each in relation.heads if (each.layer, each.head) == (relation.best_layer, relation.best_head)
            ]
            if relation.relation == "pronoun to antecedent" and best[0].largest is not None:
                weights.append(best[0].largest)
    return _of("largest weight of that head, mean", "share", paired(weights, AT_WORK), AT_WORK) if weights else None


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "3.5",
        "sinusoids may extrapolate to sequences longer than those trained on",
        "positions",
        ("extrapolation",),
        _extrapolation,
        lacks=f"{MULTI30K} --sections 3.5",
    ),
    Claim(
        "6.1",
        "single models were obtained by averaging the last checkpoints: no worse than the last by itself",
        "search",
        ("averaging",),
        _averaging,
        data="real text",
        lacks=f"{MULTI30K} --sections 6.1",
    ),
    Claim(
        "6.1",
        "a beam of 4 and α = 0.6, chosen on the development set: no other search is better",
        "search",
        ("averaging",),
        _search,
        data="real text",
        lacks=f"{MULTI30K} --sections 6.1",
    ),
    Claim(
        "figure 3",
        "many heads attend to a distant dependency of the verb",
        "heads",
        lacks="a text whose verbs are joined to their dependencies, which generated text does not need to translate",
    ),
    Claim(
        "figure 4",
        "heads are apparently involved in anaphora resolution",
        "heads",
        ("heads",),
        _knows("pronoun to antecedent"),
        lacks="python -m workflows.reproduce_claims --sections 'figure 4': only the grammar of generated text knows "
        "antecedents",
    ),
    Claim(
        "figure 4",
        "their attention is very sharp for the pronoun",
        "heads",
        ("heads",),
        _sharp,
        lacks="python -m workflows.reproduce_claims --sections 'figure 4'",
    ),
    Claim(
        "figure 5",
        "heads clearly learned to perform different tasks",
        "heads",
        lacks="a control: what heads do in a model that is not trained",
    ),
)
