"""The paired bootstrap equals sacreBLEU's for one seed, errs as often as it says, and draws seeds, too."""

import random

import numpy as np
import pytest
from sacrebleu.significance import PairedTest

from pipeline.corpora import grammar
from pipeline.evaluation import significance
from pipeline.evaluation.scoring import metrics
from pipeline.evaluation.significance import bootstrap, compared

REFERENCES = [grammar.derive(5, number).german for number in range(100)]


def noisy(seed: int, rate: float = 0.2) -> list[str]:
    """The references without some words."""
    drawn = random.Random(seed)
    return [" ".join(word for word in line.split() if drawn.random() > rate) for line in REFERENCES]


@pytest.mark.parametrize("language", ["de", "zh"])
def test_one_seed_is_sacrebleu_s_paired_bootstrap(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its p-values and signatures are equal to the bit. Copies of the seeds change nothing, other order the sign."""
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    first, second = noisy(1), noisy(3, 0.22)
    differences = compared([[first], [second]], [REFERENCES], language)
    assert [*differences] == ["paper_bleu", *metrics("zh")][language == "zh" :]
    for name, metric in metrics(language).items():
        signatures, scores = PairedTest([("", first), ("", second)], {name: metric}, [REFERENCES], "bs")()
        (baseline, other), (signature,), own = [*scores.values()][1], signatures.values(), differences[name]
        assert (own.difference, own.sacrebleu_p) == (other.score - baseline.score, other.p_value)
        assert own.signature == str(signature)
        assert own.interval[0] < own.difference < own.interval[1]
        assert own.sacrebleu_p < own.p < 1
    bleu = differences["sacrebleu"]
    copies = compared([[first] * 2, [second] * 3], [REFERENCES], language, bleu_only=True)["sacrebleu"]
    assert (copies.p, copies.interval) == (bleu.p, bleu.interval)
    swapped = compared([[second], [first]], [REFERENCES], language, bleu_only=True)["sacrebleu"]
    assert (swapped.p, swapped.difference) == (bleu.p, -bleu.difference)
    monkeypatch.setattr(significance, "MAX_RESAMPLED", 99)
    assert compared([[first], [second]], [REFERENCES], language) == {}


def test_p_is_uniform_where_nothing_differs() -> None:
    """Both models' sentences are exchanged at random. A deviation of 0.115 has a chance of 1% (Kolmogorov-Smirnov).

    0 is outside the interval where p is below 0.05. sacreBLEU's own p is too small.
    """
    metric = metrics("zh")["sacrebleu"]
    models = [metric._extract_corpus_statistics(noisy(seed), [REFERENCES]) for seed in (1, 2)]
    drawn, p, of_sacrebleu = random.Random(1), [], []
    for _ in range(200):
        orders = [drawn.sample(pair, 2) for pair in zip(*models, strict=True)]
        found = bootstrap(metric, [[list(side)] for side in zip(*orders, strict=True)], resamples=120)
        assert (found.p < 0.05) is not (found.interval[0] <= 0 <= found.interval[1])
        p.append(found.p)
        of_sacrebleu.append(found.sacrebleu_p)
    assert np.abs(np.sort(p) - np.arange(1, 201) / 200).max() < 0.115
    assert np.mean(np.array(of_sacrebleu) < 0.05) > 0.08
    assert bootstrap(metric, [models[:1], models[:1]]).p == 1


def test_seeds_are_drawn() -> None:
    """All sentences are alike, so only seeds vary: one of two is drawn, or two of three with replacement."""
    metric = metrics("de")["sacrebleu"]
    words = ["Das", "alte", "Haus", "steht", "heute", "noch", "auf", "dem", "Berg"]
    lines = [" ".join(words[:length]) for length in (9, 8, 7, 6)]
    seeds = [metric._extract_corpus_statistics([line] * 20, [[lines[0]] * 20]) for line in lines]
    scores = [metric._aggregate_and_compute(of_seed).score for of_seed in seeds]
    found = bootstrap(metric, [seeds[:2], seeds[2:]])
    assert found.difference == pytest.approx(np.mean(scores[2:]) - np.mean(scores[:2]))
    assert found.interval == pytest.approx((scores[3] - scores[0], scores[2] - scores[1]), abs=1e-4)
    # Only the best seed, drawn twice of three, is better than the second best: one of nine draws
    assert bootstrap(metric, [[seeds[0], *seeds[2:]], [seeds[1]]], resamples=4000).p == pytest.approx(2 / 9, abs=0.03)
