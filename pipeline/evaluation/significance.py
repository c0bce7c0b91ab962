"""Is a difference between two models' scores more than chance? Paired bootstrap over sentences (Koehn 2004) and seeds.

    compared([[of_base], [of_big]], [references], "de")["sacrebleu"].p    # each model's hypotheses, a list per seed

A resample draws sentences with replacement, the same for both models, and scores each by sacreBLEU. Of several seeds it
also draws one fewer than there are, with replacement (Clark et al. 2011, "Better hypothesis testing": the optimizer's
instability), which gives a mean its true variance (Rao and Wu 1988). Two or three seeds are too few to know that
variance: `aiayn claims` judges with trained models as units. Of one seed, nothing is said of another seed.
"""

import os
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.base import Metric

from pipeline.evaluation.scoring import MAX_RESAMPLED, RESAMPLES, References, metrics
from pipeline.records import Record

Statistics = list[list[int]]
"""What sacreBLEU needs of each sentence: numbers of n-grams and their matches."""


class ScoreDifference(Record):
    """The second model's score minus the first's, in points."""

    difference: float
    interval: tuple[float, float]
    """95%: the percentiles of the resamples."""
    p: float
    """Twice the share of resamples that favour the worse model, or none: below 0.05 where 0 is outside `interval`."""
    sacrebleu_p: float
    """Of the same resamples as `sacrebleu --paired-bs` computes it. Where nothing differs it is below 0.05 about twice
    as often as said, and 0.001 for equal lines."""
    signature: str

    @property
    def interval_text(self) -> str:
        """The interval as text."""
        return "[{:.2f}, {:.2f}]".format(*self.interval)


def compared(
    models: Sequence[Sequence[Sequence[str]]], references: References, language: str, *, bleu_only: bool = False
) -> dict[str, ScoreDifference]:
    """Compares two models' translations of one text, a list per seed, by name of the score.

    Returns nothing above MAX_RESAMPLED sentences. Raises UserError if the language's tokenizer is not installed.
    """
    differences = {}
    for name, metric in metrics(language, bleu_only=bleu_only).items() if len(references[0]) <= MAX_RESAMPLED else ():
        metric._ref_cache = metric._cache_references(references)
        counted = [[metric._extract_corpus_statistics(lines, None) for lines in seeds] for seeds in models]
        differences[name] = bootstrap(metric, counted)
    return differences


def bootstrap(metric: Metric, models: Sequence[Sequence[Statistics]], resamples: int = RESAMPLES) -> ScoreDifference:
    """Compares two models by their statistics, a list per seed. Sentences are those that sacreBLEU draws."""
    word = os.environ.get("SACREBLEU_SEED", "12345").lower()
    random = np.random.default_rng(None if word in ("none", "0") else int(word))
    drawn_RN = random.choice(n := len(models[0][0]), size=(resamples, n))
    scores, scores_R = [], []
    for seeds in models:
        scores.append(np.mean([metric._aggregate_and_compute(of_seed).score for of_seed in seeds]))
        arrays = [np.array(of_seed, "float32") for of_seed in seeds]  # like sacreBLEU: scores are equal to the bit
        scores_RS = [[metric._compute_score_from_stats(of[drawn].sum(0)).score for of in arrays] for drawn in drawn_RN]
        seeds_RS = random.choice(len(seeds), size=(resamples, max(1, len(seeds) - 1)))
        scores_R.append(np.take_along_axis(np.array(scores_RS), seeds_RS, axis=1).mean(1))
    difference, differences_R = scores[1] - scores[0], scores_R[1] - scores_R[0]
    distances_R, tail = np.abs(differences_R), resamples // 40
    low, high = np.sort(differences_R)[[tail - 1, -tail]]
    against = min((differences_R <= 0).sum(), (differences_R >= 0).sum())
    signature = metric.get_signature()
    signature.info |= {"seed": word, "bs": resamples}
    return ScoreDifference(
        difference=float(difference),
        interval=(float(low), float(high)),
        p=min(1.0, 2 * float(against + 1) / (resamples + 1)),
        sacrebleu_p=float((distances_R - distances_R.mean() > abs(difference)).sum() + 1) / (resamples + 1),
        signature=str(signature),
    )
