"""The claims on additive and dot-product attention (§3.2.1, §6.2), by small models trained with each function.

Functions are compared at their best learning rates for each d_k, so that the rate favours none. The first seed chooses
the rate, and the other seeds are compared: by the same seeds, the best of several rates would look better than it is
(7% instead of 2.5% false verdicts if four rates are equally good).
"""

from collections.abc import Callable, Sequence

from pipeline.complexity.attention_training import AttentionTrainingRecord
from pipeline.complexity.layer_types.sizes import AttentionFunction
from workflows.claims.claim import Claim, Finding
from workflows.claims.inference import POSITIVE, Groups, Region, within
from workflows.claims.variations import MARGIN_NATS

Trainings = Sequence[AttentionTrainingRecord]
ADDITIVE: AttentionFunction = "additive"
UNSCALED: AttentionFunction = "dot-product"
SCALED: AttentionFunction = "scaled dot-product"
COMMAND = "python -m workflows.reproduce_claims --profile multi30k --sections 3.2.1"


def at_best_rates(trainings: Trainings) -> dict[tuple[AttentionFunction, int], list[AttentionTrainingRecord]]:
    """Returns the runs of each function and d_k at the rate with the first seed's lowest NLL.

    The runs are the other seeds' in order, or the first seed's if it is the only one.
    """
    tried: dict[tuple[AttentionFunction, int], list[AttentionTrainingRecord]] = {}
    for training in sorted(trainings, key=lambda training: training.seed):
        tried.setdefault((training.function, training.d_k), []).append(training)
    chosen = {}
    for key, of_key in tried.items():
        first = min((each for each in of_key if each.seed == of_key[0].seed), key=lambda training: training.dev_nll)
        at_rate = [each for each in of_key if each.learning_rate_scale == first.learning_rate_scale]
        chosen[key] = at_rate[1:] or at_rate
    return chosen


def _worse(
    worse: AttentionFunction,
    better: AttentionFunction,
    of_sizes: Callable[[Sequence[int]], int],
    region: Region = POSITIVE,
) -> Callable[[Trainings], Finding | None]:
    """Judges one function's NLL less another's at the smallest or the largest d_k."""

    def judge(trainings: Trainings) -> Finding | None:
        chosen = at_best_rates(trainings)
        d_k = of_sizes([size for _, size in chosen])
        groups = Groups({f"{name} {size}": [-each.dev_nll for each in seeds] for (name, size), seeds in chosen.items()})
        tested = groups.difference(f"{better} {d_k}", f"{worse} {d_k}", region)
        return Finding.all_of("nats", {f"{worse} behind {better}, d_k = {d_k}": tested})

    return judge


def _claim(section: str, text: str, judge: Callable[[Trainings], Finding | None]) -> Claim:
    return Claim(section, text, "attention functions", ("functions",), judge, data="real text", lacks=COMMAND)


CLAIMS: tuple[Claim, ...] = (
    _claim(
        "3.2.1",
        "for small d_k, additive and dot-product attention perform similarly",
        _worse(UNSCALED, ADDITIVE, min, within(MARGIN_NATS)),
    ),
    _claim(
        "3.2.1",
        "for larger d_k, additive attention outperforms dot-product attention without scaling",
        _worse(UNSCALED, ADDITIVE, max),
    ),
    _claim("3.2.1", "scaling by 1/√d_k counteracts this", _worse(UNSCALED, SCALED, max)),
    _claim(
        "6.2",
        "a more sophisticated compatibility function than dot product may be beneficial",
        _worse(SCALED, ADDITIVE, max),
    ),
)
