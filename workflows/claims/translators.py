"""Claims on translators trained outside the tables: averaging and search, positions, heads."""

from collections.abc import Sequence

from pipeline.attention.records import RelationName, RelationRecord
from pipeline.evaluation.perplexity import LengthPerplexityRecord
from pipeline.evaluation.search_choice import DecodingChoiceRecord
from pipeline.settings import DecodingSettings
from workflows import paper
from workflows.claims.claim import Claim, Effect, Finding
from workflows.claims.inference import Groups, at_least, best_of_paired, paired
from workflows.claims.variations import MARGIN_BLEU, MARGIN_NATS

Averaged = Sequence[tuple[float, DecodingSettings, DecodingChoiceRecord]]
"""Per run, on the dev set: BLEU and search of the last checkpoint, and BLEU of the averaged model by search."""
ByLength = Sequence[tuple[str, LengthPerplexityRecord]]
"""Per run: its kind, one of `KINDS`, and its measurements."""
Related = Sequence[Sequence[RelationRecord]]
"""Per model: the relations that its heads find."""
KINDS = SINUSOIDS, LEARNED, ALL_LENGTHS = "sinusoids", "learned positions", "sinusoids trained on all lengths"
"""The kinds of runs that test extrapolation of positions."""
ANTECEDENT: RelationName = "pronoun to antecedent"
SHARP = 0.5
"""The minimum attention weight on one word for a head to be sharp."""
MULTI30K = "python -m workflows.reproduce_claims --profile multi30k"
PAPER_SEARCH = paper.Experiment.beam_size, paper.Experiment.length_penalty


def _by_search(choice: DecodingChoiceRecord) -> dict[tuple[int, float], float]:
    return {(each.beam_size, each.length_penalty): each.deciding[1] for each in choice.scores}


def _averaging(averaged: Averaged) -> Finding:
    """Judges whether the average is at least as good as the last checkpoint by the same search, within the margin."""
    gains = [_by_search(choice)[decoded.beam_size, decoded.length_penalty] - last for last, decoded, choice in averaged]
    return Finding.all_of("BLEU", {"average − last checkpoint": paired(gains, at_least(-MARGIN_BLEU))})


def _search(averaged: Averaged) -> Finding | None:
    """Judges whether no other search is better than the paper's by more than the margin."""
    grids = [_by_search(choice) for _, _, choice in averaged]
    rivals = [search for search in grids[0] if search != PAPER_SEARCH]
    if not rivals or PAPER_SEARCH not in grids[0]:
        return None
    leads = [[grid[PAPER_SEARCH] - grid[rival] for grid in grids] for rival in rivals]
    tested = best_of_paired(leads, at_least(-MARGIN_BLEU))
    return Finding.all_of("BLEU", {f"beam 4, α 0.6 − the best of {len(rivals)} other searches": tested})


def _extrapolation(trainings: ByLength) -> Finding | None:
    """Judges whether sinusoids extrapolate: no higher loss on longer sentences than after training on all lengths.

    The loss on sentences of the trained lengths is subtracted, since the short-sentence models read less text.
    """
    extra: dict[str, list[float]] = {}
    for kind, record in trainings:
        shorter = [part for part in record.ranges if part.up_to_tokens <= record.longest_trained]
        if record.longer and shorter:
            nll = sum(part.dev_nll * part.tokens for part in shorter) / sum(part.tokens for part in shorter)
            extra.setdefault(kind, []).append(nll - record.longer.dev_nll)
    if not {SINUSOIDS, ALL_LENGTHS} <= extra.keys():
        return None
    groups = Groups(extra)
    tested = groups.difference(SINUSOIDS, ALL_LENGTHS, at_least(-MARGIN_NATS))
    effects = [Effect.of("trained on short sentences − on all lengths", "nats", tested)]
    if LEARNED in extra:
        effects.append(Effect.of("sinusoids − learned positions", "nats", groups.difference(SINUSOIDS, LEARNED)))
    here = (
        f"log-likelihood beyond {trainings[0][1].longest_trained} tokens less that on shorter sentences; learned "
        "positions beyond that length have not been trained at all"
    )
    return Finding.of([tested], effects, here)


def _related(models: Related, name: RelationName) -> list[RelationRecord]:
    return [relation for relations in models for relation in relations if relation.relation == name]


def _knows(models: Related) -> Finding | None:
    """Judges whether the best head finds a pronoun's antecedent more often than the best fixed offset and chance."""
    if not (found := _related(models, ANTECEDENT)):
        return None
    gains = [each.best_share - max(each.offset_share, each.chance) for each in found]
    shares = ", ".join(f"{100 * each.best_share:.0f}" for each in found)
    here = f"the best head of each model is right in {shares}% of {found[0].cases} cases"
    return Finding.all_of("share", {f"{ANTECEDENT}: share right, over offset and chance": paired(gains)}, here)


def _sharp(models: Related) -> Finding | None:
    """Judges whether the head that finds antecedents has more than half of its attention on one word."""
    weights = [
        head.largest
        for relation in _related(models, ANTECEDENT)
        for head in relation.heads
        if (head.layer, head.head) == (relation.best_layer, relation.best_head) and head.largest is not None
    ]
    if not weights:
        return None
    return Finding.all_of("share", {"largest weight of that head, mean": paired(weights, at_least(SHARP))})


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
        "single models were obtained by averaging the last checkpoints: no worse than the last one",
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
        lacks="a text that cannot be translated without the distant dependency of the verb",
    ),
    Claim(
        "figure 4",
        "heads are apparently involved in anaphora resolution",
        "heads",
        ("heads",),
        _knows,
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
