"""Each claim turns with its figures: it holds by some, fails by others, and noise or one seed leaves it undecided."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pipeline.attention.figures import HeadShare, RelationFigures
from pipeline.complexity.attention_training import AttentionTrainingFigures
from pipeline.evaluation.perplexity import LengthPerplexityFigures, PerplexityFigures
from pipeline.evaluation.search_choice import DecodingChoiceFigures, SearchScores
from pipeline.settings import DecodingSettings
from workflows.claims.claim import Data, Evidence, judged
from workflows.claims.every_claim import CLAIMS, SECTIONS, WAITING
from workflows.claims.functions import ADDITIVE, SCALED, UNSCALED, at_best_rates
from workflows.claims.translators import ALL_LENGTHS, LEARNED, SINUSOIDS
from workflows.claims.variations import MARGIN_BLEU, MARGIN_NATS, Rows, Trained
from workflows.paper import VARIATIONS

NOISE = (-1.0, 0.0, 1.0)
"""Of three seeds, in units that a test chooses."""


def rows(spread: float = 0.001, sign: float = 1.0, seeds: Sequence[float] = NOISE, **nats: float) -> Rows:
    """The rows as the paper prints them, with noise; a `sign` of -1 turns differences round, `nats` shifts rows."""
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
    """Trainings by function, d_k, rate and seed: NLL above that of additive attention, at the better of two rates."""
    above = {ADDITIVE: (0.0, 0.0), UNSCALED: (small, unscaled), SCALED: (0.0, scaled)}
    return [
        AttentionTrainingFigures(
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


def searches(gain: float, rival: float, spread: float = 0.01) -> list[tuple[float, DecodingChoiceFigures]]:
    """BLEU of last checkpoints, and of averages by the paper's search, a rival's, and one that is far behind."""
    found = []
    for each in NOISE:
        ours = 30.0 + gain + spread * each
        scores = {(4, 0.6): ours, (8, 1.0): ours + rival + spread * each, (1, 0.0): ours - 5}
        listed = tuple(
            SearchScores(beam_size=beam, length_penalty=alpha, dev_paper_bleu=bleu, dev_sacrebleu=0.0)
            for (beam, alpha), bleu in scores.items()
        )
        found.append((30.0, DecodingChoiceFigures(scores=listed, settings=DecodingSettings())))
    return found


def lengths(behind: float, spread: float = 0.001) -> list[tuple[str, LengthPerplexityFigures]]:
    """NLL on longer sentences: how far sinusoids trained on short ones are behind; learned positions are worse."""
    of_kinds = {SINUSOIDS: behind, LEARNED: behind + 1, ALL_LENGTHS: 0.0}
    return [
        (
            kind,
            LengthPerplexityFigures(
                longest_trained=16,
                longer=PerplexityFigures(dev_nll=3 + nll + spread * each, dev_perplexity=20.0, tokens=100),
                ranges=(),
            ),
        )
        for kind, nll in of_kinds.items()
        for each in NOISE
    ]


def heads(share: float, largest: float, spread: float = 0.01) -> list[list[RelationFigures]]:
    """Models whose best head finds antecedents in this share of cases; the best fixed offset in half of them."""
    return [
        [
            RelationFigures(
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


@dataclass(frozen=True)
class Case:
    """Evidence by which a claim holds, by which it fails, and by which it is undecided, where there can be such."""

    needs: str
    holds: Any
    fails: Any
    undecided: Any = None


NOISY = rows(spread=1.0)
TURNED = rows(sign=-1.0)
TABLE_2 = {
    ("en-de", "base"): [(27.3, 3.3e18), (27.2, 3.3e18), (27.4, 3.3e18)],
    ("en-de", "big"): [(28.9, 2.3e19), (29.0, 2.3e19), (29.1, 2.3e19)],
    ("en-fr", "base"): [(40.9, 3.3e18), (41.0, 3.3e18), (41.1, 3.3e18)],
    ("en-fr", "big"): [(41.7, 2.3e19), (41.8, 2.3e19), (41.9, 2.3e19)],
}
WORSE_2 = {cell: [(bleu - 4, 50 * cost) for bleu, cost in of_cell] for cell, of_cell in TABLE_2.items()}
ONCE_2 = {cell: of_cell[:1] for cell, of_cell in TABLE_2.items()}
TABLE_4 = {"WSJ only, discriminative": [91.2, 91.3, 91.4], "semi-supervised": [93.2, 93.3, 93.4]}
WORSE_4 = {training: [f1 - 5 for f1 in of_training] for training, of_training in TABLE_4.items()}
ONCE_4 = {training: f1[:1] for training, f1 in TABLE_4.items()}
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
    "single models were obtained by averaging the last checkpoints: no worse than the last by itself": Case(
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
    "EN-DE: base costs a fraction of any of the competitive models": Case("table2", TABLE_2, WORSE_2),
    "EN-FR: big outperforms all single models before": Case("table2", TABLE_2, WORSE_2, ONCE_2),
    "EN-FR: at less than 1/4 of the training cost of the best of them": Case("table2", TABLE_2, WORSE_2),
    "the Transformer achieves better BLEU than the models before on both pairs (caption)": Case(
        "table2", TABLE_2, WORSE_2, ONCE_2
    ),
    "the Transformer outperforms the BerkeleyParser even when trained on WSJ only": Case(
        "table4", TABLE_4, WORSE_4, ONCE_4
    ),
    "better than all models before but the Recurrent Neural Network Grammar": Case("table4", TABLE_4, WORSE_4, ONCE_4),
}
"""By the text of the claim."""
TIMED = {
    "dot-product attention is much faster than additive attention in practice",
    "dot-product attention is more space-efficient than additive attention in practice",
    "h heads of d_model / h cost about as much as one head of full width",
    "self-attention is faster than recurrence where n is smaller than d",
}
"""Those of test_timings.py."""
ALL_DATA: tuple[Data, ...] = ("real text", "WMT14", "WSJ")
OF_TABLE_3 = [text for text, case in CASES.items() if case.needs == "table3"]


def verdict(text: str, needs: str, found: Any) -> str:
    """Judges a claim by one piece of evidence."""
    (claim,) = (each for each in CLAIMS if each.text == text)
    (outcome,) = judged([claim], Evidence({needs: found}, ALL_DATA))
    return outcome.verdict


def test_every_claim_that_can_be_judged_has_a_case() -> None:
    """Nothing is judged that no test turns round."""
    assert {claim.text for claim in CLAIMS if claim.judge} == CASES.keys() | TIMED
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)
    assert all(claim.lacks for claim in CLAIMS), "an empty cell says what would fill it"


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("wanted", ["holds", "fails", "undecided"])
def test_a_claim_turns_with_its_figures(text: str, wanted: str) -> None:
    """By three seeds of little noise it holds or fails; much noise, or one training, leaves it undecided."""
    case = CASES[text]
    found = getattr(case, wanted)
    if found is not None:
        assert verdict(text, case.needs, found) == wanted


@pytest.mark.parametrize("text", OF_TABLE_3)
def test_one_seed_a_row_decides_nothing(text: str) -> None:
    """Whatever the figures are; base against base is not even compared."""
    assert verdict(text, "table3", rows(seeds=[0.0])) == ("not run" if "other seeds" in text else "undecided")


@pytest.mark.parametrize("text", OF_TABLE_3)
def test_a_missing_row_is_not_run(text: str) -> None:
    """Base by itself is not enough for what compares others with it."""
    found = {"base": rows()["base"]}
    assert verdict(text, "table3", found) == ("undecided" if "other seeds" in text else "not run")


def test_only_the_named_data_can_judge() -> None:
    """On generated text, trade-offs are not judged though their figures are there; mechanisms are."""
    found = {case.needs: case.holds or case.undecided for case in CASES.values()}
    verdicts = {outcome.text: outcome.verdict for outcome in judged(CLAIMS, Evidence(found))}
    mechanisms = {text for text, case in CASES.items() if case.needs in ("heads", "extrapolation")}
    assert {verdicts[text] for text in mechanisms} == {"holds"}
    assert all(verdicts[text].startswith("needs ") for text in CASES.keys() - mechanisms)
    assert verdicts["dropout is very helpful in avoiding over-fitting"] == "needs real text"
    assert all(verdicts[claim.text] == "not run" for claim in WAITING)


def test_margins_are_half_the_smallest_difference_that_is_interpreted() -> None:
    """A4 and B2: 5.01 of 4.92, and 25.4 of 25.8 BLEU."""
    assert pytest.approx(math.log(5.01 / 4.92) / 2) == MARGIN_NATS
    assert pytest.approx(0.2) == MARGIN_BLEU


def test_each_function_counts_with_its_own_best_rate() -> None:
    """One that learns best slowly is not judged by a rate that suits the others."""
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
    assert {len(seeds) for seeds in chosen.values()} == {3}


PRINTED = {
    "a new state of the art on both tasks, ensembles included": "undecided",
    "a new state of the art after twelve hours on eight P100 GPUs": "holds",
    "base takes 100,000 steps or 12 hours": "holds",
    "big takes 300,000 steps (3.5 days)": "holds",
    "EN-DE: big outperforms all models before, ensembles included, by more than 2.0 BLEU": "holds",
    "EN-DE: base costs a fraction of any of the competitive models": "holds",
    "EN-FR: big outperforms all single models before": "holds",
    "EN-FR: at less than 1/4 of the training cost of the best of them": "holds",
    "the Transformer achieves better BLEU than the models before on both pairs (caption)": "fails",
    "the Transformer outperforms the BerkeleyParser even when trained on WSJ only": "holds",
    "better than all models before but the Recurrent Neural Network Grammar": "fails",
}
"""What the paper's own figures make of its comparisons."""


def test_the_paper_s_own_figures_are_compared() -> None:
    """Base EN-FR (38.1) is behind MoE (40.56); Luong et al. (93.0) are before the parser (92.7)."""
    printed = {claim.text: claim.printed for claim in CLAIMS if claim.printed}
    assert {text: each.verdict for text, each in printed.items()} == PRINTED
    texts = " | ".join(each.text for each in printed.values())
    assert "28.4 − 26.36 = +2.04 BLEU" in texts
    assert "38.1 − 40.56 = -2.46 BLEU" in texts
    assert "92.7 − 93.0 (Luong et al. (2015), multi-task) = -0.3 F1" in texts
    assert "100,000 × 0.4 s = 11.1 h, by rounding 9.7 to 12.5 h; printed 12 h" in texts
    assert "by §6.1's text 41 − 41.29 = -0.29 BLEU" in texts


def test_the_paper_s_effects_stand_beside_ours() -> None:
    """In the same unit and direction: A1 is ln(5.29 / 4.91) behind the best, and 0.9 BLEU."""
    (claim,) = (each for each in CLAIMS if each.text == "single-head attention is worse than the best setting")
    (outcome,) = judged([claim], Evidence({"table3": rows()}, ALL_DATA))
    nats, bleu = outcome.effects
    assert nats.printed == pytest.approx(math.log(5.29 / 4.91))
    assert nats.value == pytest.approx(nats.printed)
    assert (bleu.printed, bleu.value) == (pytest.approx(0.9), pytest.approx(0.9))


def test_claims_stand_in_the_paper_s_order() -> None:
    """Abstract, sections by number, captions, then the control."""
    sections = ["abstract", "1", "3.2.1", "3.2.2", "3.5", "4", "5.2", "5.4", "6.1", "6.2", "6.3"]
    assert [*sections, "figure 3", "figure 4", "figure 5", "table 2", "negative control"] == [*SECTIONS]
