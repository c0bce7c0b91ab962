"""What differs from the paper in a measured table: the experiment of each cell beside the paper's (§5, §6.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.evaluation.costs import PAPER_SUSTAINED_FLOP_S
from workflows import paper
from workflows.console.quantities import duration, rounded
from workflows.tables.measurements import Measured

OPTIMIZER_NAMES = {
    "beta_1": "β1",
    "beta_2": "β2",
    "epsilon": "ε",
    "warmup_steps": "warmup",
    "learning_rate_scale": "learning rate ×",
    "label_smoothing": "ε_ls",
}
DECODING_NAMES = {"beam_size": "beam", "length_penalty": "α", "max_extra_tokens": "output at most input +"}


@dataclass(frozen=True)
class Difference:
    """One aspect in which some cells differ from the paper."""

    what: str
    paper: str
    here: str
    cells: tuple[str, ...]
    """Labels, e.g. `EN-DE base`; `all` for every cell that was run."""


def _fields(names: dict[str, str], printed: Any, measured: Any) -> tuple[str, str]:
    """The named fields that are not alike, as `N 6, h 8`, for both sides."""
    unlike = [name for name in names if getattr(printed, name) != measured[name]]
    sides = [{name: getattr(printed, name) for name in unlike}, {name: measured[name] for name in unlike}]
    left, right = (", ".join(f"{names[name]} {value}" for name, value in side.items()) for side in sides)
    return left, right


def _near(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * other


def _data(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    alike = printed.corpus in cell.data and _near(cell.train_pairs, printed.pairs, 0.1)
    here = f"{cell.data or 'own data'}, {rounded(cell.train_pairs)} pairs"
    return f"{printed.corpus}, about {rounded(printed.pairs)} pairs", "" if alike else here


def _vocabulary(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    size = cell.config["vocabulary_size"]
    here = "" if _near(size, printed.vocabulary_size, 0.01) else f"{rounded(size)} pieces"
    return f"about {rounded(printed.vocabulary_size)} pieces", here


def _model(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    return _fields(paper.MODEL_SYMBOLS, printed.model, cell.config)


def _optimizer(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    return _fields(OPTIMIZER_NAMES, printed, cell.settings["optimizer"])


def _updates(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    updates = cell.run["updates"]
    return rounded(printed.updates), "" if updates == printed.updates else rounded(updates)


def _tokens(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    updates, budget = cell.run["updates"], rounded(printed.budget_tokens)
    means = [cell.run[side] / updates for side in ("source_tokens", "target_tokens")]
    here = f"{rounded(means[0])} source and {rounded(means[1])} target on average"
    alike = all(_near(mean, printed.budget_tokens, 0.1) for mean in means)
    return f"about {budget} source and {budget} target", "" if alike else here


def _hardware(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    here = f"{cell.cost['devices']} × {cell.cost['device_name']}, {cell.run['dtype']}"
    return f"{printed.hardware}, float32", "" if here == f"{printed.hardware}, float32" else here


def _duration(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    step_s = cell.run["train_s"] / cell.run["updates"]
    return (
        f"{printed.duration}, {printed.step_s} s an update",
        f"{duration(cell.run['train_s'])}, {step_s:.2g} s an update",
    )


def _averaging(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    minutes, updates = cell.settings["checkpoint_minutes"], cell.averaged_updates
    told = f"last {printed.averaged}, written every {printed.checkpoint_minutes:.0f} minutes"
    told = told if printed.averaged > 1 else "none"
    if len(updates) == printed.averaged and (minutes == printed.checkpoint_minutes or printed.averaged == 1):
        return told, ""
    listed = ", ".join(map(str, updates)) if len(updates) < 4 else f"{updates[0]}, … {updates[-1]}"
    return told, f"last {len(updates)} (updates {listed})" if len(updates) > 1 else "none"


def _decoding(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    return _fields(DECODING_NAMES, printed, cell.decoding["settings"])


def _test_set(cell: Measured, printed: paper.Experiment) -> tuple[str, str]:
    sentences = cell.main_scores["sentences"]
    told = f"{printed.test_set}, {rounded(printed.test_sentences)} sentences"
    alike = (cell.test_set, sentences) == (printed.test_set, printed.test_sentences)
    return told, "" if alike else f"{cell.test_set}, {rounded(sentences)} sentences"


ASPECTS: dict[str, Callable[[Measured, paper.Experiment], tuple[str, str]]] = {
    "training data": _data,
    "test set": _test_set,
    "vocabulary": _vocabulary,
    "model": _model,
    "updates": _updates,
    "tokens an update": _tokens,
    "optimizer": _optimizer,
    "averaging": _averaging,
    "decoding": _decoding,
    "hardware": _hardware,
    "training time": _duration,
}
"""Each gives (paper, here); an empty `here` says that nothing differs."""


def differences(
    cells: Sequence[Measured], experiment: Callable[[str, str], paper.Experiment] = paper.experiment
) -> list[Difference]:
    """In which aspects cells differ from the paper's `experiment(pair, model)`; those that differ alike together."""
    found: list[Difference] = []
    for what, aspect in ASPECTS.items():
        together: dict[tuple[str, str], list[str]] = {}
        for cell in cells:
            printed, here = aspect(cell, experiment(cell.pair, cell.model))
            if here:
                together.setdefault((printed, here), []).append(cell.label)
        for (printed, here), names in together.items():
            everywhere = len(names) == len(cells) > 1
            found.append(Difference(what, printed, here, ("all",) if everywhere else tuple(names)))
    return found


def reading_notes(cells: Sequence[Measured]) -> list[str]:
    """How the scores are to be read; true of every table, with the signatures of this one."""
    tokenized, detokenized = paper.SAME_CHECKPOINT_BLEU
    signatures = sorted({cell.main_scores["signature"] for cell in cells})
    return [
        "paper BLEU: tokenized, case-sensitive, as the authors scored; quotes made ASCII, Moses tokens, for German "
        "compounds split at hyphens. Printed rows are of this kind.",
        f"sacreBLEU: detokenized; one and the same checkpoint has been scored {tokenized} by paper BLEU and "
        f"{detokenized} by sacreBLEU, so the two are never to be compared.",
        *(f"sacreBLEU signature: {signature}" for signature in signatures),
    ]


def table2_notes(cells: Sequence[Measured]) -> list[str]:
    """What stands beneath Table 2: how scores and costs are to be read, with the rates measured."""
    told = [
        *reading_notes(cells),
        f"Each measured cell is one training with one seed; trainings differ by ±{paper.SEED_SPREAD_BLEU} BLEU.",
        "Training cost, paper's way: training time × devices × sustained single-precision rate (§6.1). "
        "Counted: the operations of the model's matrix products.",
    ]
    rates: dict[str, list[float]] = {}
    for cell in measured_rates(cells):
        rates.setdefault(cell.cost["device_name"], []).append(cell.cost["sustained_flop_s"] / 1e12)
    for device, tera in rates.items():
        between = f"{min(tera):.3g}" if len(set(tera)) == 1 else f"{min(tera):.3g} to {max(tera):.3g}"
        told.append(
            f"{device} is not among the paper's devices ({', '.join(PAPER_SUSTAINED_FLOP_S)}): its sustained rate, "
            f"{between} TFLOPS a device, was measured by a float32 matrix product before each training."
        )
    told += [row.footnote for row in paper.TABLE_2 if row.footnote]
    told += [
        f"{cell.label} on {name}: paper BLEU {scores['paper_bleu']:.2f}, sacreBLEU {scores['sacrebleu']:.2f}."
        for cell in cells
        for name, scores in cell.scores.items()
        if name != cell.test_set
    ]
    return told


def measured_rates(cells: Sequence[Measured]) -> list[Measured]:
    """The cells whose sustained rate is not the paper's but their run's own."""
    return [cell for cell in cells if cell.cost["sustained_source"] == "measured"]
