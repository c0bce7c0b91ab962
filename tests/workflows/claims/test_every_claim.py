"""Each claim holds for some values, fails for others, and is undecided with large noise or a single seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.attention.records import HeadShare, RelationRecord
from pipeline.complexity.attention_training import AttentionTrainingRecord
from pipeline.complexity.recall import RECALLING, RecallRecord, RecallSettings
from pipeline.evaluation.perplexity import LengthPerplexityRecord, LengthRange, PerplexityRecord
from pipeline.evaluation.search_choice import DecodingChoiceRecord, SearchScores
from pipeline.settings import DecodingSettings
from pipeline.training.speed import ModelSpeed
from workflows.claims import comparisons
from workflows.claims.claim import Data, Effect, Evidence, Judged, judged
from workflows.claims.competitors import Curves, LearningCurve, Speeds, common_budget
from workflows.claims.every_claim import CLAIMS, SECTIONS, WAITING
from workflows.claims.functions import ADDITIVE, SCALED, UNSCALED, at_best_rates
from workflows.claims.translators import ALL_LENGTHS, LEARNED, SINUSOIDS
from workflows.claims.variations import MARGIN_BLEU, MARGIN_NATS, Rows, Trained
from workflows.paper import VARIATIONS
from workflows.tables.table import Results, ResultsArtifact

NOISE = (-1.0, 0.0, 1.0)
"""Three seeds, in units chosen by a test."""


def rows(spread: float = 0.001, sign: float = 1.0, seeds: Sequence[float] = NOISE, **nats: float) -> Rows:
    """The printed rows with noise. A `sign` of -1 reverses differences, `nats` shifts rows."""
    base = VARIATIONS["base"]
    made = {}
    for name, printed in VARIATIONS.items():
        nll = sign * math.log(float(printed.perplexity) / float(base.perplexity)) + nats.get(name, 0.0)
        bleu = sign * (float(printed.bleu) - float(base.bleu))
        accuracy = -sign * 0.05 * (name == "D3")
        made[name] = [
            Trained(1.6 + nll + spread * each, 25.8 + bleu - 10 * spread * each, 0.6 + accuracy - spread * each)
            for each in seeds
        ]
    return made


def functions(unscaled: float, scaled: float, small: float = 0.0, spread: float = 0.001) -> list[Any]:
    """Runs by function, d_k, rate and seed: NLL above additive attention's, at the better of two rates."""
    above = {ADDITIVE: (0.0, 0.0), UNSCALED: (small, unscaled), SCALED: (0.0, scaled)}
    return [
        AttentionTrainingRecord(
            function=function,
            d_k=d_k,
            seed=seed,
            learning_rate_scale=rate,
            updates=500,
            parameters=1,
            dev_nll=2.0 + nll + spread * NOISE[seed] + (rate == 1.0) * 0.5,
            dev_perplexity=math.exp(2.0 + nll),
            train_s=1.0,
        )
        for function, of_sizes in above.items()
        for d_k, nll in zip((4, 128), of_sizes, strict=True)
        for rate in (0.25, 1.0)
        for seed in range(3)
    ]


def searches(
    gain: float, rival: float, spread: float = 0.01
) -> list[tuple[float, DecodingSettings, DecodingChoiceRecord]]:
    """BLEU of last checkpoints, and of averages by the paper's search, a rival's, and a much worse one."""
    found = []
    for each in NOISE:
        ours = 30.0 + gain + spread * each
        scores = {(8, 1.0): ours + rival + spread * each, (4, 0.6): ours, (1, 0.0): ours - 5}
        listed = tuple(
            SearchScores(beam_size=beam, length_penalty=alpha, dev_paper_bleu=bleu, dev_sacrebleu=0.0)
            for (beam, alpha), bleu in scores.items()
        )
        best = DecodingSettings(beam_size=8, length_penalty=1.0)
        found.append((30.0, DecodingSettings(), DecodingChoiceRecord(scores=listed, settings=best)))
    return found


def lengths(behind: float, spread: float = 0.001) -> list[tuple[str, LengthPerplexityRecord]]:
    """NLL on longer sentences: `nats` is the gap of sinusoids trained on short ones; learned positions are worse.

    On all sentences, both are much further behind, since they were trained on less text. That does not count.
    """
    of_kinds = {SINUSOIDS: (5.0, behind), LEARNED: (5.0, behind + 1), ALL_LENGTHS: (0.0, 0.0)}
    return [
        (
            kind,
            LengthPerplexityRecord(
                longest_trained=16,
                longer=PerplexityRecord(dev_nll=3 + less + nll + spread * each, dev_perplexity=20.0, tokens=100),
                ranges=(
                    length_range(0, 8, 2.0 + less + 0.1 * nll, tokens=30),  # weighted by tokens, the two are unchanged
                    length_range(8, 16, 1.0 + less - 0.3 * nll, tokens=10),
                    length_range(16, 32, 3 + less + nll + spread * each, tokens=100),
                ),
            ),
        )
        for kind, (less, nll) in of_kinds.items()
        for each in NOISE
    ]


def length_range(above: int, up_to: int, nll: float, tokens: int) -> LengthRange:
    """Sentences of these lengths."""
    return LengthRange(
        above_tokens=above, up_to_tokens=up_to, pairs=1, tokens=tokens, dev_nll=nll, dev_perplexity=math.exp(nll)
    )


def heads(share: float, largest: float, spread: float = 0.01) -> list[list[RelationRecord]]:
    """Models whose best head finds this fraction of antecedents; the best fixed offset finds half."""
    return [
        [
            RelationRecord(
                relation="pronoun to antecedent",
                cases=100,
                chance=0.1,
                offset=-3,
                offset_share=0.5,
                best_layer=1,
                best_head=2,
                best_share=share + spread * each,
                best_interval=(0.0, 1.0),
                heads=(
                    HeadShare(layer=1, head=1, share=0.0, weight=0.0, largest=0.99),
                    HeadShare(layer=1, head=2, share=share, weight=0.1, largest=largest + spread * each),
                ),
            )
        ]
        for each in NOISE
    ]


def speeds(slower: float = 1.5) -> Speeds:
    """Competitors with slower updates."""
    made = {}
    for model, update_s, sign in (("base", 1.0, -1), ("recurrent", slower, 1), ("convolutional", slower, 1)):
        rounds_s = tuple(update_s * (1 + 0.01 * sign * noise) for noise in NOISE)
        made[model] = ModelSpeed(architecture=model, parameters=1, update_s=rounds_s, tokens_s={})
    return made


def learned(behind: float, spread: float = 0.001) -> Curves:
    """Curves of base, and of competitors with this gap after each second.

    Competitors compute half as many FLOP per second. The recurrent model stops first, at 80 s.
    """
    made = {}
    for model, ahead, ends_s in (("base", 0.0, 100), ("recurrent", behind, 80), ("convolutional", behind, 100)):
        seconds = [20.0, 40.0, 80.0, 100.0][: 3 if ends_s == 80 else 4]
        made[model] = [
            LearningCurve(
                seconds,
                [(1.0 if model == "base" else 0.5) * each for each in seconds],
                [5 - each / 50 + ahead + spread * noise for each in seconds],
            )
            for noise in NOISE
        ]
    return made


def recalled(sign: float = 1.0, spread: float = 0.02) -> list[RecallRecord]:
    """Recall that is worse, or with sign -1 better, over longer paths. Over 8 positions all are equal."""
    return [
        RecallRecord(
            layer_type=layer_type,
            distance=distance,
            path_steps=steps,
            parameters=1,
            rate=0.1,
            chosen_by={0.1: 1.0},
            nll=tuple(1 + (distance > 8) * sign * 0.1 * place + spread * noise for noise in NOISE),
            settings=RecallSettings(),
        )
        for place, (layer_type, steps) in enumerate(zip(RECALLING, (1, 6, 16, 128), strict=True))
        for distance in (8, 128)
    ]


@dataclass(frozen=True)
class Case:
    """Evidence for which a claim holds, fails and is undecided, as far as each is possible."""

    needs: str
    holds: Any
    fails: Any
    undecided: Any = None


NOISY = rows(spread=1.0)
TURNED = rows(sign=-1.0)
TABLE_2 = {
    ("en-de", "base"): [(27.3, 3.3e18), (27.2, 3.4e18), (27.4, 3.2e18)],
    ("en-de", "big"): [(28.9, 2.3e19), (29.0, 2.3e19), (29.1, 2.3e19)],
    ("en-fr", "base"): [(40.9, 3.3e18), (41.0, 3.3e18), (41.1, 3.3e18)],
    ("en-fr", "big"): [(41.7, 2.3e19), (41.8, 2.4e19), (41.9, 2.2e19)],
}
WORSE_2 = {cell: [(bleu - 4, 50 * cost) for bleu, cost in of_cell] for cell, of_cell in TABLE_2.items()}
ONCE_2 = {cell: of_cell[:1] for cell, of_cell in TABLE_2.items()}
TABLE_4 = {"WSJ only, discriminative": [91.2, 91.3, 91.4], "semi-supervised": [93.2, 93.3, 93.4]}
WORSE_4 = {training: [f1 - 5 for f1 in of_training] for training, of_training in TABLE_4.items()}
ONCE_4 = {training: f1[:1] for training, f1 in TABLE_4.items()}
STATE_OF_THE_ART = "a new state of the art on both tasks: on EN-DE, ahead even of all ensembles"
CAPTION = "the Transformer, base or big, achieves better BLEU than the single models before on both pairs (caption)"
CASES: Mapping[str, Case] = {
    "label smoothing hurts perplexity, but improves accuracy and BLEU": Case("table3", rows(), TURNED, NOISY),
    "single-head attention is worse than the best setting": Case("table3", rows(), rows(A1=-0.2), NOISY),
    "quality also drops off with too many heads": Case("table3", rows(), rows(A4=-0.2), NOISY),
    "reducing the attention key size d_k hurts model quality": Case("table3", rows(), TURNED, NOISY),
    "bigger models are better: in layers, in d_model and in d_ff": Case("table3", rows(), rows(C7=0.5), NOISY),
    "dropout is very helpful in avoiding over-fitting": Case("table3", rows(), TURNED, NOISY),
    "learned positional embeddings give nearly identical results to the base model": Case(
        "table3", rows(), rows(E=0.1), NOISY
    ),
    "base differs from base with other seeds": Case("table3", None, None, rows()),
    "superior in quality to recurrent and convolutional models after the same time of training": Case(
        "competitors", learned(0.1), learned(-0.1), learned(0.1, spread=0.2)
    ),
    "and so after as many operations": Case("competitors", learned(1.0), learned(0.5), learned(1.0, spread=0.5)),
    "it trains significantly faster than recurrent or convolutional layers: an update takes less time": Case(
        "training_speed", speeds(), speeds(slower=0.9), speeds(slower=1.005)
    ),
    "the shorter the paths between positions, the easier long-range dependencies are learned": Case(
        "recall", recalled(), recalled(-1.0), recalled(spread=0.5)
    ),
    "for small d_k, additive and dot-product attention perform similarly": Case(
        "functions", functions(0.1, 0.1), functions(0.1, 0.1, small=0.1), functions(0.1, 0.1, spread=0.1)
    ),
    "for larger d_k, additive attention outperforms dot-product attention without scaling": Case(
        "functions", functions(0.1, 0.0), functions(-0.1, 0.0), functions(0.1, 0.0, spread=0.2)
    ),
    "scaling by 1/√d_k counteracts this": Case(
        "functions", functions(0.1, 0.0), functions(0.0, 0.1), functions(0.1, 0.0, spread=0.2)
    ),
    "a more sophisticated compatibility function than dot product may be beneficial": Case(
        "functions", functions(0.0, 0.1), functions(0.0, -0.1), functions(0.0, 0.1, spread=0.2)
    ),
    "sinusoids may extrapolate to sequences longer than those trained on": Case(
        "extrapolation", lengths(0.0), lengths(0.1), lengths(0.0, spread=0.1)
    ),
    "single models were obtained by averaging the last checkpoints: no worse than the last one": Case(
        "averaging", searches(0.0, 0.0), searches(-0.5, 0.0), searches(0.0, 0.0, spread=1.0)
    ),
    "a beam of 4 and α = 0.6, chosen on the development set: no other search is better": Case(
        "averaging", searches(0.0, 0.1), searches(0.0, 0.5), searches(0.0, 0.1, spread=1.0)
    ),
    "heads are apparently involved in anaphora resolution": Case(
        "heads", heads(0.7, 0.6), heads(0.3, 0.6), heads(0.7, 0.6, spread=0.3)
    ),
    "their attention is very sharp for the pronoun": Case(
        "heads", heads(0.7, 0.6), heads(0.7, 0.4), heads(0.7, 0.6, spread=0.3)
    ),
    "a new state of the art after twelve hours on eight P100 GPUs": Case("table2", TABLE_2, WORSE_2, ONCE_2),
    "EN-DE: big outperforms all models before, ensembles included, by more than 2.0 BLEU": Case(
        "table2", TABLE_2, WORSE_2, ONCE_2
    ),
    "EN-DE: base costs a fraction of any of the competitive models": Case("table2", TABLE_2, WORSE_2, ONCE_2),
    "EN-FR: big outperforms all single models before": Case("table2", TABLE_2, WORSE_2, ONCE_2),
    "EN-FR: at less than 1/4 of the training cost of the best of them": Case("table2", TABLE_2, WORSE_2, ONCE_2),
    STATE_OF_THE_ART: Case("table2", TABLE_2, WORSE_2, ONCE_2),
    CAPTION: Case("table2", TABLE_2, WORSE_2, ONCE_2),
    "the Transformer outperforms the BerkeleyParser even when trained on WSJ only": Case(
        "table4", TABLE_4, WORSE_4, ONCE_4
    ),
    "better than all models before but the Recurrent Neural Network Grammar": Case("table4", TABLE_4, WORSE_4, ONCE_4),
}
"""Claims by their text."""
TIMED = {
    "dot-product attention is much faster than additive attention in practice",
    "dot-product attention is more space-efficient than additive attention in practice",
    "h heads of d_model / h cost about as much as one head of full width",
    "self-attention is faster than recurrence where n is smaller than d",
}
"""The claims of test_timings.py."""


class ResultsFile(ResultsArtifact):
    """Results without a run."""

    record_file = "claims.json"


ALL_DATA: tuple[Data, ...] = ("real text", "WMT14", "WSJ")
OF_TABLE_3 = [text for text, case in CASES.items() if case.needs == "table3"]


def outcome(text: str, needs: str, found: Any) -> Judged:
    """Judges a claim by one kind of evidence."""
    (claim,) = (each for each in CLAIMS if each.text == text)
    (judgement,) = judged([claim], Evidence({needs: found}, ALL_DATA))
    return judgement


def verdict(text: str, needs: str, found: Any) -> str:
    """The verdict on a claim by one kind of evidence."""
    return outcome(text, needs, found).verdict


def test_every_claim_that_can_be_judged_has_a_case() -> None:
    """Every claim has a test that changes its verdict."""
    assert {claim.text for claim in CLAIMS if claim.judge} == CASES.keys() | TIMED
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)
    assert all(claim.lacks for claim in CLAIMS), "an empty cell says what would fill it"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (text, wanted)
        for text, case in CASES.items()
        for wanted in ("holds", "fails", "undecided")
        if getattr(case, wanted) is not None
    ],
)
def test_a_claim_turns_with_its_figures(text: str, wanted: str) -> None:
    """With three seeds of little noise it holds or fails. With much noise or one run, it is undecided."""
    case = CASES[text]
    assert verdict(text, case.needs, getattr(case, wanted)) == wanted


@pytest.mark.parametrize("text", OF_TABLE_3)
def test_one_seed_a_row_decides_nothing(text: str) -> None:
    """Whatever the values. Base against base is not compared."""
    assert verdict(text, "table3", rows(seeds=[0.0])) == ("not run" if "other seeds" in text else "undecided")


@pytest.mark.parametrize("text", sorted({*OF_TABLE_3} - {"base differs from base with other seeds"}))
def test_a_row_of_one_seed_decides_nothing(text: str) -> None:
    """Although base has more seeds, which give a variance."""
    found = {name: trainings if name == "base" else trainings[:1] for name, trainings in rows().items()}
    assert verdict(text, "table3", found) == "undecided"
    assert {(each.n, each.low, each.high) for each in effects(text, "table3", found)} == {(1, None, None)}


def test_the_control_compares_trainings_of_one_row() -> None:
    """Two seeds of base against a third, by the variance of all rows. Chance decides; either verdict is possible."""
    (text,) = (each.text for each in CLAIMS if each.family == "negative control")
    for apart, wanted in ((0.0005, "undecided"), (1.0, "holds"), (-1.0, "fails")):
        found = rows()
        base = [replace(each, nll=each.nll - apart * (seed > 0)) for seed, each in enumerate(found["base"])]
        judgement = outcome(text, "table3", {**found, "base": base})
        assert (judgement.verdict, judgement.kind) == (wanted, "control")
        nats, bleu = judgement.effects
        assert (nats.text, nats.n, bleu.unit) == ("base, 2 seeds − 1 others", 3, "BLEU")
        assert nats.printed == bleu.printed == 0.0
        variance = (19 * 2 * 0.001**2 + 0.001**2 / 2) / 39  # of the other rows, and of the two seeds
        assert nats.high is not None
        assert nats.high - nats.value == pytest.approx(2.0227 * math.sqrt(variance * 3 / 2), rel=1e-3)
        assert nats.value == pytest.approx(apart - 0.0015)
        assert bleu.value == pytest.approx(-0.015)
    for seeds, halves in ((2, "base, 1 seeds − 1 others"), (4, "base, 2 seeds − 2 others")):
        first, _ = effects(text, "table3", rows(seeds=[0.0, 1.0, 2.0, 3.0][:seeds]))
        assert (first.text, first.n) == (halves, seeds)


def test_without_some_numbers_of_heads_the_claims_on_them_cannot_fail() -> None:
    """Behind the best of some means behind the best of all. Not behind may still be behind another."""
    texts = "single-head attention is worse than the best setting", "quality also drops off with too many heads"
    for text, name in zip(texts, ("A1", "A4"), strict=True):
        for missing in ("A2", "base"):
            some = {row: trainings for row, trainings in rows().items() if row != missing}
            assert verdict(text, "table3", some) == "holds"
            better = {row: trainings for row, trainings in rows(**{name: -0.5}).items() if row != missing}
            assert verdict(text, "table3", better) == "undecided"
            assert (
                outcome(text, "table3", better).here == f"without {missing}, which may be better, the claim cannot fail"
            )
    assert verdict(texts[1], "table3", {name: rows()[name] for name in ("A1", "A4")}) == "undecided"


def test_a_row_without_accuracy_keeps_no_claim_from_being_judged() -> None:
    """Only claims that need its accuracy are not run. Files of earlier versions lack it."""
    text = "label smoothing hurts perplexity, but improves accuracy and BLEU"
    for name, wanted in (("B1", "holds"), ("D3", "not run"), ("base", "not run")):
        found = dict(rows())
        found[name] = [*found[name][:2], replace(found[name][2], accuracy=None)]
        assert verdict(text, "table3", found) == wanted


def test_only_the_named_data_can_judge() -> None:
    """On generated text, trade-offs are not judged even with values; mechanisms are."""
    found = {case.needs: case.holds or case.undecided for case in CASES.values()}
    verdicts = {each.text: each.verdict for each in judged(CLAIMS, Evidence(found))}
    mechanisms = {
        text for text, case in CASES.items() if case.needs in ("heads", "extrapolation", "recall", "training_speed")
    }
    assert {verdicts[text] for text in mechanisms} == {"holds"}
    assert all(verdicts[text].startswith("needs ") for text in CASES.keys() - mechanisms)
    assert verdicts["dropout is very helpful in avoiding over-fitting"] == "needs real text"
    assert all(verdicts[claim.text] == "not run" for claim in WAITING)


def test_the_average_is_compared_by_the_search_of_the_last_checkpoint() -> None:
    """If the chosen search differs from the paper's, searches are not compared. The paper's may be missing."""
    averaging, search = (text for text, case in CASES.items() if case.needs == "averaging")
    greedy = DecodingSettings(beam_size=1, length_penalty=0.0)
    found = [(last, greedy, choice) for last, _, choice in searches(0.0, 0.0)]
    assert verdict(averaging, "averaging", found) == "fails"
    assert verdict(averaging, "averaging", [(last - 5, *others) for last, *others in found]) == "holds"
    without = [
        (*others, choice.model_copy(update={"scores": tuple(each for each in choice.scores if each.beam_size != 4)}))
        for *others, choice in found
    ]
    assert (verdict(averaging, "averaging", without), verdict(search, "averaging", without)) == ("fails", "not run")
    only = [
        (*others, choice.model_copy(update={"scores": tuple(each for each in choice.scores if each.beam_size == 4)}))
        for *others, choice in searches(0.0, 0.0)
    ]
    assert verdict(search, "averaging", only) == "not run"


def test_learned_positions_decide_nothing_about_extrapolation() -> None:
    """Sinusoids are compared with sinusoids trained on all lengths. Without longer sentences there is no verdict."""
    text = "sinusoids may extrapolate to sequences longer than those trained on"
    found = lengths(0.0)
    assert verdict(text, "extrapolation", [each for each in found if each[0] != LEARNED]) == "holds"
    assert verdict(text, "extrapolation", [each for each in found if each[0] != ALL_LENGTHS]) == "not run"
    assert verdict(text, "extrapolation", [each for each in found if each[0] != SINUSOIDS]) == "not run"
    nothing = [(kind, figures.model_copy(update={"longer": None})) for kind, figures in found]
    assert verdict(text, "extrapolation", nothing) == "not run"
    judgement = outcome(text, "extrapolation", lengths(0.004))
    behind, learned = judgement.effects
    assert (behind.value, behind.above) == (pytest.approx(-0.004), -MARGIN_NATS)
    assert (learned.value, learned.above) == (pytest.approx(1.0), 0.0)
    assert judgement.here.startswith("log-likelihood beyond 16 tokens less that on shorter sentences")


def test_what_is_judged_reads_back_the_same(tmp_path: Path) -> None:
    """From `claims.json`, which omits defaults."""
    claims = judged(CLAIMS, Evidence({case.needs: case.undecided or case.holds for case in CASES.values()}, ALL_DATA))
    assert {claim.verdict for claim in claims} == {"undecided", "holds", "not run"}
    assert ResultsFile(tmp_path).write(Results(claims=claims)).load().claims == claims


def test_margins_are_half_the_smallest_difference_that_is_interpreted() -> None:
    """A4 and B2: 5.01 of 4.92, and 25.4 of 25.8 BLEU."""
    assert pytest.approx(math.log(5.01 / 4.92) / 2) == MARGIN_NATS
    assert pytest.approx(0.2) == MARGIN_BLEU


def test_each_function_counts_with_its_own_best_rate() -> None:
    """A function that learns best slowly is not judged at others' rate. The first seed chooses, and is excluded."""
    slow = functions(0.1, 0.0)
    fast = [
        each.model_copy(update={"dev_nll": each.dev_nll - 0.7 * (each.learning_rate_scale == 1.0)})
        for each in slow
        if (each.function, each.d_k) != (ADDITIVE, 4)
    ]
    mixed = [*(each for each in slow if (each.function, each.d_k) == (ADDITIVE, 4)), *fast]
    chosen = at_best_rates(mixed)
    rates = {key: {each.learning_rate_scale for each in seeds} for key, seeds in chosen.items()}
    assert rates.pop((ADDITIVE, 4)) == {0.25}
    assert all(of_key == {1.0} for of_key in rates.values())
    assert {tuple(each.seed for each in seeds) for seeds in chosen.values()} == {(1, 2)}
    assert at_best_rates(slow[::-1]) == at_best_rates(slow)
    assert at_best_rates(slow[:1]) == {(ADDITIVE, 4): slow[:1]}
    only = at_best_rates([each for each in slow if each.seed == 2])
    assert {tuple(each.seed for each in seeds) for seeds in only.values()} == {(2,)}


def test_the_rate_is_not_chosen_by_the_seeds_that_are_compared() -> None:
    """By the seeds that choose it, the best of several rates looks better than it is."""
    lucky = [
        each.model_copy(update={"dev_nll": each.dev_nll - 0.6 * (each.learning_rate_scale == 1.0 and each.seed > 0)})
        for each in functions(0.1, 0.0)
    ]
    assert {each.learning_rate_scale for seeds in at_best_rates(lucky).values() for each in seeds} == {0.25}


PRINTED = {
    "a new state of the art after twelve hours on eight P100 GPUs": "holds",
    "base takes 100,000 steps or 12 hours": "holds",
    "big takes 300,000 steps (3.5 days)": "holds",
    "EN-DE: big outperforms all models before, ensembles included, by more than 2.0 BLEU": "holds",
    "EN-DE: base costs a fraction of any of the competitive models": "holds",
    "EN-FR: big outperforms all single models before": "holds",
    "EN-FR: at less than 1/4 of the training cost of the best of them": "holds",
    STATE_OF_THE_ART: "holds",
    CAPTION: "fails",
    "the Transformer outperforms the BerkeleyParser even when trained on WSJ only": "holds",
    "better than all models before but the Recurrent Neural Network Grammar": "fails",
}
"""The verdicts of comparisons on the paper's printed values."""


def test_the_paper_s_own_figures_are_compared() -> None:
    """Base EN-FR (38.1) is behind MoE (40.56); Luong et al. (93.0) are before the parser (92.7)."""
    printed = {claim.text: claim.printed for claim in CLAIMS if claim.printed}
    assert {text: each.verdict for text, each in printed.items()} == PRINTED
    texts = " | ".join(each.text for each in printed.values())
    assert "28.4 − 26.36 = +2.04 BLEU" in texts
    assert "38.1 − 40.56 = -2.46 BLEU" in texts
    assert "92.7 − 93.0 (Luong et al. (2015), multi-task) = -0.3 F1" in texts
    assert "100,000 × 0.4 s = 11.1 h, by rounding 9.7 to 12.5 h; printed 12 h" in texts
    assert "300,000 × 1.0 s = 83.3 h, by rounding 79.2 to 87.5 h; printed 84 h" in texts
    assert "28.4 − 26.36 = +2.04 BLEU; 41.8 − 40.56 = +1.24 BLEU; by §6.1's text 41.0 − 40.56 = +0.44 BLEU" in texts
    assert "3.3e18 / 9.6e18 = 0.34 | " in texts


def effects(text: str, needs: str, found: Any) -> list[Effect]:
    """The effects of a claim."""
    return [*outcome(text, needs, found).effects]


@pytest.mark.parametrize("text", OF_TABLE_3)
def test_the_paper_s_effects_stand_beside_ours(text: str) -> None:
    """The unit and direction are the same: on the printed rows, both are equal."""
    found = effects(text, "table3", rows(spread=0.0))
    assert found
    for effect in found:
        assert effect.unit == "accuracy" or effect.value == pytest.approx(effect.printed), effect
    if "single-head" in text:  # behind A3 in perplexity; behind A3 and base in BLEU
        assert [effect.printed for effect in found] == pytest.approx([math.log(5.29 / 4.91), 0.9])
    some = {name: rows()[name] for name in ("A1", "A2", "A4")}
    behind = [effect.printed for effect in effects("quality also drops off with too many heads", "table3", some)]
    assert behind == pytest.approx([math.log(5.01 / 5.00), 0.1])


@pytest.mark.parametrize("text", sorted({*OF_TABLE_3} - {"base differs from base with other seeds"}))
def test_whatever_else_is_missing_is_not_needed(text: str) -> None:
    """A row whose runs all failed is ignored. Without one of its rows, a claim is not run or cannot fail."""
    own = {
        "label smoothing hurts perplexity, but improves accuracy and BLEU": ["D3", "base"],
        "single-head attention is worse than the best setting": ["A1"],
        "quality also drops off with too many heads": ["A4"],
        "reducing the attention key size d_k hurts model quality": ["B1", "B2", "base"],
        "bigger models are better: in layers, in d_model and in d_ff": ["C1", "C2", "C4", "C5", "C6", "C7", "base"],
        "dropout is very helpful in avoiding over-fitting": ["D1", "base"],
        "learned positional embeddings give nearly identical results to the base model": ["E", "base"],
    }[text]
    for name in own:
        assert verdict(text, "table3", {**rows(), name: []}) == "not run"
    heads, chains = ("A1", "A2", "base", "A3", "A4"), ("C3",)
    found = {name: trainings for name, trainings in rows().items() if name in (*own, *heads, *chains)}
    assert verdict(text, "table3", {**found, "D2": [], "D4": []}) == "holds"
    assert outcome(text, "table3", found).here == ""


def test_label_smoothing_needs_no_other_rows() -> None:
    """Base and the row without it suffice."""
    found = {name: rows()[name] for name in ("D3", "base")}
    assert verdict("label smoothing hurts perplexity, but improves accuracy and BLEU", "table3", found) == "holds"


COMPARED = {text: case.needs for text, case in CASES.items() if case.needs in ("table2", "table4")}


@pytest.mark.parametrize(("text", "needs"), COMPARED.items())
def test_comparisons_need_all_their_cells(text: str, needs: str) -> None:
    """Missing models or costs matter only if the claim needs them."""
    found: Mapping[Any, Any] = TABLE_2 if needs == "table2" else TABLE_4
    needed = [cell for cell in found if verdict(text, needs, {**found, cell: []}) == "not run"]
    assert needed
    for cell in found.keys() - needed:
        assert verdict(text, needs, {key: value for key, value in found.items() if key != cell}) == "holds"
    if "cost" in text:
        unknown = {cell: [(bleu, None) for bleu, _ in of_cell] for cell, of_cell in TABLE_2.items()}
        assert verdict(text, needs, unknown) == "not run"
        some = {cell: [*of_cell, (0.0, None)] for cell, of_cell in TABLE_2.items()}
        assert verdict(text, needs, some) == "holds"
    claims = *comparisons.TABLE_2, *comparisons.TABLE_4
    assert {claim.kind for claim in claims} == {"printed"}


def test_comparisons_have_the_paper_s_margins_and_limits() -> None:
    """Measured values less the best rival's; for costs, the ratio of the rival's to ours."""
    by_text = {
        text: effects(text, needs, TABLE_2 if needs == "table2" else TABLE_4) for text, needs in COMPARED.items()
    }
    (two,) = by_text["EN-DE: big outperforms all models before, ensembles included, by more than 2.0 BLEU"]
    assert (two.above, two.value, two.printed) == (2.0, pytest.approx(29.0 - 26.36), pytest.approx(2.04))
    (fraction,) = by_text["EN-DE: base costs a fraction of any of the competitive models"]
    assert (fraction.above, fraction.printed) == (1.0, pytest.approx(9.6 / 3.3))
    (quarter,) = by_text["EN-FR: at less than 1/4 of the training cost of the best of them"]
    assert (quarter.above, quarter.printed) == (4.0, pytest.approx(12 / 2.3))
    assert quarter.value == pytest.approx(12 / (2.2 * 2.3 * 2.4) ** (1 / 3))
    both = by_text["better than all models before but the Recurrent Neural Network Grammar"]
    assert [(effect.value, effect.printed) for effect in both] == [
        (pytest.approx(0.9), 0.9),
        (pytest.approx(0.3), -0.3),
    ]


def test_printed_figures_can_fail() -> None:
    """Just beyond the printed digits, or at the limit of a margin."""
    for hours, wanted in ((9.7, "fails"), (9.73, "holds"), (12.49, "holds"), (12.51, "fails")):
        printed = comparisons._duration("", "base", hours).printed
        assert printed is not None
        assert printed.verdict == wanted
    for hours, wanted in ((79.16, "fails"), (79.17, "holds"), (87.49, "holds"), (87.51, "fails")):
        printed = comparisons._duration("", "big", hours).printed
        assert printed is not None
        assert printed.verdict == wanted
    for than, wanted in ((3.2e18, "fails"), (3.3e18, "fails"), (3.4e18, "holds")):
        printed = comparisons._cheaper("", comparisons.BASE_EN_DE, than).printed
        assert printed is not None
        assert printed.verdict == wanted
    assert [comparisons._by_rounding("", 2.04, margin, more_than=2.0).verdict for margin in (2.0, 2.01)] == [
        *("fails", "holds")
    ]
    beyond = comparisons._better("", "", comparisons.BASE_EN_DE, by=0.95).printed
    assert beyond is not None
    assert beyond.verdict == "fails"
    assert comparisons._best_parser("semi-supervised", ["Huang & Harper (2009)"]).f1 == "91.3"


def test_only_the_relation_that_is_claimed_is_judged() -> None:
    """Others may be measured, too. Files of earlier versions lack the largest weight."""
    relation, sharp = (text for text, case in CASES.items() if case.needs == "heads")
    found = [
        [each.model_copy(update={"relation": "verb to distant object", "best_share": 0.0}) for each in model] + model
        for model in heads(0.7, 0.6)
    ]
    assert (verdict(relation, "heads", found), verdict(sharp, "heads", found)) == ("holds", "holds")
    assert [effect.n for effect in effects(relation, "heads", found)] == [3]
    only = [model[:1] for model in found]
    assert (verdict(relation, "heads", only), verdict(sharp, "heads", only)) == ("not run", "not run")
    earlier = [
        [
            each.model_copy(update={"heads": tuple(head.model_copy(update={"largest": None}) for head in each.heads)})
            for each in model
        ]
        for model in heads(0.7, 0.6)
    ]
    assert (verdict(relation, "heads", earlier), verdict(sharp, "heads", earlier)) == ("holds", "not run")
    judgement = outcome(relation, "heads", heads(0.7, 0.6))
    assert judgement.here == "the best head of each model is right in 69, 70, 71% of 100 cases"
    assert judgement.effects[0].value == pytest.approx(0.2)


def test_claims_stand_in_the_paper_s_order() -> None:
    """The abstract, then sections by number, captions, and the control."""
    sections = ["abstract", "1", "3.2.1", "3.2.2", "3.5", "4", "5.2", "5.4", "6.1", "6.2", "6.3", "7"]
    assert [*sections, "figure 3", "figure 4", "figure 5", "table 2", "negative control"] == [*SECTIONS]


def test_curves_are_compared_where_the_shortest_ends() -> None:
    """By linear interpolation: at 80 s base has 3.4; 40 FLOP are 40 s of base, 80 s of the others."""
    curves = learned(0.1, spread=0.0)
    assert (common_budget(curves, "seconds"), common_budget(curves, "flop")) == (80.0, 40.0)
    (base, *_) = curves["base"]
    assert base.nll_at("seconds", 60.0) == pytest.approx(3.8)
    assert base.nll_at("flop", 40.0) == pytest.approx(4.2)
    assert verdict("and so after as many operations", "competitors", learned(0.5, spread=1e-6)) == "fails"
    assert verdict("and so after as many operations", "competitors", {"base": curves["base"]}) == "not run"
    of_time = "superior in quality to recurrent and convolutional models after the same time of training"
    found = [
        effect.text
        for text in (of_time, "and so after as many operations")
        for effect in effects(text, "competitors", curves)
    ]
    assert found[::2] == [f"recurrent behind the Transformer at {budget}" for budget in ("1 min 20 s", "4.0e1 FLOP")]


def test_curves_of_other_conditions_are_not_compared() -> None:
    """Nor are models without a measurement at the budget, because they are too slow."""
    of_time = "superior in quality to recurrent and convolutional models after the same time of training"
    curves = learned(0.1)
    elsewhere = [replace(curve, conditions="another dtype") for curve in curves["recurrent"]]
    late = [replace(curve, seconds=[90.0, 100.0], nll=[4.0, 3.0]) for curve in curves["convolutional"]]
    for changed in ({"recurrent": elsewhere}, {"convolutional": late}):
        assert verdict(of_time, "competitors", {**curves, **changed}) == "not run"
