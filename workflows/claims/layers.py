"""Judges what §3.2, §3.5 and §4 argue of layers and positions, by what was counted, timed and trained in small."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from model.config import BASE
from pipeline.complexity.attention_training import AttentionTrainingFigures
from pipeline.complexity.exponents import fit
from pipeline.complexity.figures import ArgumentCounts, ArgumentTimes, Counts, PassMeasurements
from pipeline.complexity.layer_types.sizes import AttentionFunction
from pipeline.evaluation.perplexity import LengthPerplexityFigures
from workflows.claims.judged import Difference, Judged, verdict
from workflows.quantities import percent
from workflows.tables.table import Results, Row
from workflows.tables.table1 import AT_EVERY_N, CROSSOVERS, TOLERANCE, VARIABLES

Name = TypeVar("Name", bound=str)
KINDS = SINUSOIDS, LEARNED, ALL_LENGTHS = "sinusoids", "learned positions", "sinusoids trained on all lengths"
"""The trainings that tell whether positions extrapolate."""
MAX_ERROR = 1e-6
"""The largest difference of a positional encoding from what a linear function of another gives."""
MAX_DEVIATION = 0.05
"""By which fraction a count may differ from what is claimed."""
FALLS = 0.5
"""A gradient is small where it has fallen to less than this part."""
ALIKE_NATS = 0.1
"""Up to which difference of log-perplexity models are alike: a tenth of the perplexity."""
MUCH = 2.0
"""From which ratio of times a function is much faster, at the paper's d_k."""
CONSTANT = 2.0
"""Costs are the same, but for constants, within this factor."""
ADDITIVE: AttentionFunction = "additive"
UNSCALED: AttentionFunction = "dot-product"
SCALED: AttentionFunction = "scaled dot-product"


def by_function(trainings: Sequence[AttentionTrainingFigures]) -> dict[AttentionFunction, dict[int, float]]:
    """Returns dev perplexity, that of the mean log-likelihood over the seeds: by function, then by d_k."""
    nll: dict[AttentionFunction, dict[int, list[float]]] = {}
    for training in trainings:
        nll.setdefault(training.function, {}).setdefault(training.d_k, []).append(training.dev_nll)
    return _perplexity(nll)


def _perplexity(nll: Mapping[Name, Mapping[int, Sequence[float]]]) -> dict[Name, dict[int, float]]:
    return {
        name: {size: math.exp(statistics.fmean(values)) for size, values in of_name.items()}
        for name, of_name in nll.items()
    }


def by_length(trainings: Sequence[tuple[str, int, LengthPerplexityFigures]]) -> dict[str, dict[int, float]]:
    """Returns dev perplexity as `by_function` does: by what the training was, then by the upper end of a range."""
    nll: dict[str, dict[int, list[float]]] = {}
    for name, _, figures in trainings:
        for part in figures.ranges:
            nll.setdefault(name, {}).setdefault(part.up_to_tokens, []).append(part.dev_nll)
    return _perplexity(nll)


def of_functions(trainings: Sequence[AttentionTrainingFigures]) -> dict[str, Judged]:
    """Judges additive and dot-product attention by dev perplexity after equally many updates (§3.2.1)."""
    nll = {(training.function, training.d_k, training.seed): training.dev_nll for training in trainings}
    seeds = sorted({training.seed for training in trainings})
    small, large = (limit(training.d_k for training in trainings) for limit in (min, max))
    means = by_function(trainings)

    def judged(worse: AttentionFunction, better: AttentionFunction, d_k: int, *, alike: bool = False) -> Judged:
        difference = Difference.over([nll[worse, d_k, seed] - nll[better, d_k, seed] for seed in seeds])
        here = (
            f"at d_k = {d_k}, {worse} {means[worse][d_k]:.2f}, {better} {means[better][d_k]:.2f} perplexity "
            f"({difference.text(3)} nats)"
        )
        return Judged(difference.within(ALIKE_NATS) if alike else difference.verdict(), here, seeds=len(seeds))

    return {
        "alike": judged(UNSCALED, ADDITIVE, small, alike=True),
        "additive": judged(UNSCALED, ADDITIVE, large),
        "scaling": judged(UNSCALED, SCALED, large),
    }


def of_lengths(trainings: Sequence[tuple[str, int, LengthPerplexityFigures]]) -> dict[str, Judged]:
    """Judges whether sinusoids extrapolate (§3.5), by perplexity on sentences longer than any in training.

    Of each training, what it was (a name of `KINDS`), its seed and its figures. "May extrapolate" is taken at its word:
    on longer sentences, a model is as good as one that was trained on such sentences, too.
    """
    nll: dict[str, dict[int, float]] = {}
    for name, seed, figures in trainings:
        if figures.longer:
            nll.setdefault(name, {})[seed] = figures.longer.dev_nll
    seeds = sorted(set.intersection(*(set(nll.get(name, {})) for name in KINDS)))
    if len(seeds) < 2:
        return {}
    means = {name: math.exp(statistics.fmean(nll[name][seed] for seed in seeds)) for name in KINDS}
    longest, longer = trainings[0][2].longest_trained, trainings[0][2].longer
    assert longer is not None

    def judged(worse: str, better: str, *, as_good: bool = False) -> Judged:
        difference = Difference.over([nll[worse][seed] - nll[better][seed] for seed in seeds])
        here = (
            f"beyond {longest} tokens ({longer.tokens:,} target tokens): {worse} {means[worse]:.2f}, {better} "
            f"{means[better]:.2f} perplexity ({difference.text(3)} nats)"
        )
        return Judged(difference.at_most(ALIKE_NATS) if as_good else difference.verdict(), here, seeds=len(seeds))

    return {
        "extrapolation": judged(SINUSOIDS, ALL_LENGTHS, as_good=True),
        "better than learned": judged(LEARNED, SINUSOIDS),
    }


def of_width(d_model: int, lengths: Sequence[int]) -> dict[str, Judged]:
    """Judges how often sentences of `lengths` tokens are shorter than a model is wide (§4)."""
    shorter = sum(length < d_model for length in lengths) / len(lengths)
    here = (
        f"n < d_model = {d_model} in {percent(shorter)} of the dev set; n is {statistics.fmean(lengths):.0f} on average"
    )
    return {"n below d": Judged(verdict(shorter > 0.5), here)}


def of_table1(table: Results, counts: Counts) -> dict[str, Judged]:
    """Judges complexities, sequential operations and paths (§4, Table 1)."""
    rows = table.tables[0].rows
    layers = {layer.name: layer for layer in counts.layers}
    reach, kernel_reach = (counts.settings.window - 1) // 2, counts.settings.kernel // 2
    attention, recurrent = (layers[name].sequential_operations for name in ("self-attention", "recurrent"))
    return {
        "exponents": _exponents(rows),
        "separable": _exponents([row for row in rows if row.name == "separable convolution"]),
        "sequential": Judged(
            verdict(len(set(attention.values())) == 1 and all(steps == n for n, steps in recurrent.items())),
            f"{_by_n(attention)}; recurrent {_by_n(recurrent)}",
        ),
        "recurrence": _recurrence(table, counts),
        "neighbourhood": _path(
            layers["restricted self-attention"].longest_path,
            lambda n: math.ceil((n - 1) / reach),
            f"(n - 1) / {reach}",
        ),
        "contiguous": _path(
            layers["convolutional"].longest_path_contiguous,
            lambda n: math.ceil((n - 1) / kernel_reach),
            f"(n - 1) / {kernel_reach}",
        ),
    }


def _exponents(rows: Sequence[Row]) -> Judged:
    """Judges exponents by counted FLOP; those of time, which smaller terms disturb, are beside them."""
    found = {
        row.name: {name: [row.number(f"{name}.{of}") or 0.0 for of in ("flop", "time", "paper")] for name in VARIABLES}
        for row in rows
    }
    holds = all(abs(flop - paper) <= TOLERANCE for of in found.values() for flop, _, paper in of.values())
    texts = [
        f"{layer} " + ", ".join(f"{name}: {flop:.2f} ({time:.2f})" for name, (flop, time, _) in of.items())
        for layer, of in found.items()
    ]
    return Judged(verdict(holds), f"exponents of FLOP (of time): {'; '.join(texts)}")


def _by_n(counted: Mapping[int, int]) -> str:
    return ", ".join(f"{steps} at n = {n}" for n, steps in list(counted.items())[-2:])


def _path(paths: Mapping[int, int], formula: Callable[[int], int], text: str) -> Judged:
    """Compares the longest paths, counted in layers, with what a formula says of n."""
    return Judged(verdict(all(steps == formula(n) for n, steps in paths.items())), f"{_by_n(paths)} layers: {text}")


def _recurrence(table: Results, counts: Counts) -> Judged:
    """Compares times where n < d, and the lengths from which self-attention is the slower."""
    faster = {}
    for n, d in counts.sweep.points("self-attention"):
        attention, recurrent = (
            table.metrics.get(f"time_s.{layer}.n_{n}.d_{d}") for layer in ("self-attention", "recurrent")
        )
        if n < d and attention and recurrent:
            faster[d] = recurrent / attention
    rows = [row for other in table.tables if other.title == CROSSOVERS for row in other.rows]
    slower = [row for row in rows if row.values["n"] == AT_EVERY_N or row.number("n") is not None]
    holds = all(ratio > 1 for ratio in faster.values()) and all(
        (row.number("n") or 0) >= (row.number("d") or 0) for row in slower
    )
    texts = [f"{_over(faster)} × as fast at n < d from {min(faster)} to {max(faster)}"] if faster else []
    for row in slower:
        n_slower = row.number("n")
        since = AT_EVERY_N if n_slower is None else f"from n = {n_slower:.0f}"
        texts.append(f"slower at d = {row.values['d']} {since} ({row.values['sequences']} at once)")
    return Judged(verdict(holds), "; ".join(texts))


def of_counted(counts: ArgumentCounts) -> dict[str, Judged]:
    """Judges what needs no clock: footnote 4, gradients, positions, and costs and paths of §4."""
    products, errors = counts.softmax, counts.positions
    ratios = {d_k: product.variance / d_k for d_k, product in products.items()}
    small, large = min(products), max(products)
    norms = {d_k: (products[d_k].gradient_norm, products[d_k].scaled_gradient_norm) for d_k in (small, large)}
    falls, falls_scaled = (after / before for before, after in zip(norms[small], norms[large], strict=True))
    worst = max(errors.values())
    longest = {k: max(paths.items()) for k, paths in counts.one_sided_path.items()}
    factors = {k: flop / counts.recurrent_flop / k for k, flop in counts.kernels_flop.items()}
    shares = [size.separable_flop / size.attention_flop for size in counts.full_kernels]
    return {
        "variance": Judged(
            verdict(all(abs(ratio - 1) <= MAX_DEVIATION for ratio in ratios.values())),
            f"variance over d_k is {_over(ratios)} for d_k from {small} to {large}",
        ),
        "gradients": Judged(
            verdict(falls < FALLS and falls_scaled > FALLS),
            f"from d_k = {small} to {large} the norm of the softmax's Jacobian falls to {falls:.2f} of itself, with "
            f"scaling to {falls_scaled:.2f}",
        ),
        "linear": Judged(
            verdict(worst <= MAX_ERROR),
            f"a rotation by k misses PE(pos + k) by at most {worst:.0e}, k from {min(errors)} to {max(errors)}",
        ),
        "factor k": Judged(
            verdict(all(abs(factor - 1) <= MAX_DEVIATION for factor in factors.values())),
            f"a convolution has {statistics.fmean(factors.values()):.2f} k times the FLOP of recurrence, which has two "
            "products at each position: W x and U h",
        ),
        "k is n": Judged(
            verdict(min(shares) >= 1 / CONSTANT and max(shares) <= CONSTANT),
            f"{min(shares):.2f} to {max(shares):.2f} of the FLOP, at n from {counts.full_kernels[0].length} to "
            f"{counts.full_kernels[-1].length}: the same but for a constant",
        ),
        "dilated": Judged(
            verdict(
                all(
                    layers == next(i for i in range(n) if k**i >= n)
                    for k, paths in counts.one_sided_path.items()
                    for n, layers in paths.items()
                )
            ),
            "one-sided kernels, dilated by k: "
            + ", ".join(f"{layers} layers for n = {n} at k = {k}" for k, (n, layers) in longest.items()),
        ),
    }


def of_timed(counts: ArgumentCounts, times: ArgumentTimes) -> dict[str, Judged]:
    """Judges what is said of speed and memory (§3.2), and costs over k and r (§4), which are counted and timed."""
    additive, scaled = times.functions[ADDITIVE], times.functions[SCALED]
    slower = {d_k: additive[d_k].median_s / scaled[d_k].median_s for d_k in scaled}
    larger = {d_k: additive[d_k].peak_bytes / scaled[d_k].peak_bytes for d_k in scaled}
    at = min(slower, key=lambda d_k: abs(d_k - BASE.d_k))
    heads = {h: measured.median_s / times.heads[min(times.heads)].median_s for h, measured in times.heads.items()}
    eight = heads[min(heads, key=lambda h: abs(h - BASE.n_heads))]
    return {
        "faster": Judged(
            verdict(min(slower.values()) > 1 and slower[at] >= MUCH),
            f"additive takes {_over(slower)} × the time; {slower[at]:.1f} × at d_k = {at}",
        ),
        "smaller": Judged(verdict(min(larger.values()) > 1), f"additive takes {_over(larger)} × the peak memory"),
        "heads": Judged(
            verdict(len(set(counts.heads_flop.values())) == 1 and eight <= CONSTANT),
            f"the same FLOP for h from {min(heads)} to {max(heads)}; {_over(heads)} × the time of one head",
        ),
        "kernel": _linear("k", counts.kernels_flop, times.kernels),
        "window": _linear("r", counts.windows_flop, times.windows),
    }


def _over(ratios: Mapping[int, float]) -> str:
    return f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f}"


def _linear(name: str, flop: Mapping[int, int], times: Mapping[int, PassMeasurements]) -> Judged:
    """Judges by the exponent of FLOP; that of time, which smaller terms disturb, is beside it."""
    counted = fit([*flop.items()]).value
    timed = fit([(size, measured.median_s) for size, measured in times.items()])
    here = f"exponent of {name}: {counted:.2f} in FLOP, {timed.value:.2f} ({timed.low:.2f} to {timed.high:.2f}) in time"
    return Judged(verdict(abs(counted - 1) <= TOLERANCE), here)
