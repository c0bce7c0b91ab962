"""Compares the experiment behind each measured cell with the paper's (§5, §6.1), and writes the notes of Table 2."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from model.config import TransformerConfig
from pipeline.evaluation.bleu_tokenizers import NO_PAPER_BLEU
from pipeline.evaluation.costs import paper_device
from workflows import paper
from workflows.quantities import duration, rounded
from workflows.tables.measurements import TrainedModel, Translation
from workflows.tables.provenance import hardware, provenance_notes, rate_notes

OPTIMIZER_NAMES = {
    "beta_1": "β1",
    "beta_2": "β2",
    "epsilon": "ε",
    "warmup_steps": "warmup",
    "learning_rate_scale": "learning rate ×",
    "label_smoothing": "ε_ls",
    "schedule": "schedule",
}
MODEL_NAMES = {
    **paper.MODEL_SYMBOLS,
    "attention_window": "r of the encoder (0: no limit)",
    "attention_dropout": "dropout of attention weights",
}
"""The fields of Table 3, and those that the paper only considers (§4) or uses only for parsing (§6.3)."""
DECODING_NAMES = {"beam_size": "beam", "length_penalty": "α", "max_extra_tokens": "output at most input +"}


@dataclass(frozen=True)
class Difference:
    """One aspect in which some cells differ from the paper."""

    what: str
    paper: str
    here: str
    cells: tuple[str, ...]
    """The labels of these cells, e.g. `EN-DE base`, or `all` if every cell that was run differs."""


def differing_fields(names: Mapping[str, str], printed: object, measured: object) -> tuple[str, str]:
    """Lists the named fields that differ, as `N 6, h 8`, for both sides."""
    differing = [name for name in names if getattr(printed, name) != getattr(measured, name)]
    left, right = (
        ", ".join(f"{names[name]} {getattr(side, name)}" for name in differing) for side in (printed, measured)
    )
    return left, right


def is_near(number: float, other: float, tolerance: float) -> bool:
    """Whether `number` is within a relative `tolerance` of `other`."""
    return abs(number - other) <= tolerance * other


def _data(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    is_same = printed.corpus in cell.data and is_near(cell.train_pairs, printed.pairs, 0.1)
    here = f"{cell.data or 'unnamed data'}, {rounded(cell.train_pairs)} pairs"
    return f"{printed.corpus}, about {rounded(printed.pairs)} pairs", "" if is_same else here


def _test_set(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    # WMT 2014's dev set is newstest2013 (`pipeline.corpora.wmt14`).
    is_development = cell.test_set == "dev" and printed.corpus in cell.data
    test_set, sentences = paper.VARIATION_TEST_SET if is_development else cell.test_set, cell.sentences
    is_same = (test_set, sentences) == (printed.test_set, printed.test_sentences)
    here = f"{test_set}, {rounded(sentences)} sentences"
    return f"{printed.test_set}, {rounded(printed.test_sentences)} sentences", "" if is_same else here


def _vocabulary(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    size = cell.config.vocabulary_size
    here = "" if is_near(size, printed.vocabulary_size, 0.01) else f"{rounded(size)} pieces"
    if printed.pieces == "word-pieces":
        here = f"{rounded(size)} pieces of a joint byte-pair encoding"
    return f"about {rounded(printed.vocabulary_size)} {printed.pieces}", here


def competitor_text(config: TransformerConfig) -> str:
    """Describes a model that is not a Transformer."""
    sizes = ("n_layers", "d_model", "d_ff", "dropout")
    return f"{config.architecture}, " + ", ".join(f"{MODEL_NAMES[name]} {getattr(config, name)}" for name in sizes)


def _model(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    if cell.config.architecture != "transformer":
        return "Transformer", competitor_text(cell.config)
    return differing_fields(MODEL_NAMES, printed.model, cell.config)


def _updates(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    updates = cell.run.updates
    return rounded(printed.updates), "" if updates == printed.updates else rounded(updates)


def _tokens(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    source, target = (tokens / cell.run.updates for tokens in (cell.run.source_tokens, cell.run.target_tokens))
    is_same = all(is_near(mean, printed.budget_tokens, 0.1) for mean in (source, target))
    budget = rounded(printed.budget_tokens)
    here = f"{rounded(source)} source and {rounded(target)} target on average"
    return f"about {budget} source and {budget} target", "" if is_same else here


def _optimizer(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    return differing_fields(OPTIMIZER_NAMES, printed, cell.settings.optimizer)


def _averaging(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    updates, every = cell.averaged_updates, printed.checkpoint_updates
    in_paper = (
        f"last {printed.averaged}, written every {printed.checkpoint_minutes:.0f} minutes, {rounded(every)} updates"
        if printed.averaged > 1
        else "none"
    )
    if len(updates) == printed.averaged and all(after - before == every for before, after in pairwise(updates)):
        return in_paper, ""
    numbers = [rounded(update) for update in updates]
    shown = ", ".join(numbers if len(numbers) < 4 else (numbers[0], "…", *numbers[-2:]))
    return in_paper, f"last {len(updates)} (updates {shown})" if len(updates) > 1 else "none"


def _decoding(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    return differing_fields(DECODING_NAMES, printed, cell.decoding.settings)


def _hardware(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    in_paper = f"{printed.hardware}, float32"
    is_same = hardware(cell.run, _printed_name) == in_paper
    return in_paper, "" if is_same else hardware(cell.run)


def _printed_name(device_name: str) -> str:
    """Returns a device's name as the paper prints it, if it is one of the paper's devices."""
    device = paper_device(device_name)
    return f"NVIDIA {device}" if device else device_name


def _duration(cell: TrainedModel, printed: paper.Experiment) -> tuple[str, str]:
    train_s = cell.run.train_s
    return (
        f"{printed.duration}, {printed.step_s} s per update",
        f"{duration(train_s)}, {train_s / cell.run.updates:.2g} s per update",
    )


Cell = TypeVar("Cell", bound=TrainedModel)
Aspect = Callable[[Cell, paper.Experiment], tuple[str, str]]
"""Returns the text for the paper and the text for here, which is empty if nothing differs."""
ASPECTS: dict[str, Aspect[TrainedModel]] = {
    "training data": _data,
    "test set": _test_set,
    "vocabulary": _vocabulary,
    "model": _model,
    "updates": _updates,
    "tokens per update": _tokens,
    "optimizer": _optimizer,
    "averaged checkpoints": _averaging,
    "decoding": _decoding,
    "hardware": _hardware,
    "training time": _duration,
}
"""The aspects compared, by name."""


def differences(
    cells: Sequence[Cell],
    experiment: Callable[[str, str], paper.Experiment] = paper.experiment,
    aspects: Mapping[str, Aspect[Cell]] = ASPECTS,
) -> list[Difference]:
    """Lists the `aspects` in which cells differ from the paper's `experiment(pair, model)`.

    Cells that differ in the same way share one entry.
    """
    entries: list[Difference] = []
    for what, aspect in aspects.items():
        labels: dict[tuple[str, str], list[str]] = {}
        for cell in cells:
            printed, here = aspect(cell, experiment(cell.pair, cell.model))
            if here:
                labels.setdefault((printed, here), []).append(cell.label)
        for (printed, here), differing in labels.items():
            is_everywhere = len(differing) == len(cells) > 1
            entries.append(Difference(what, printed, here, ("all",) if is_everywhere else tuple(differing)))
    return entries


def reading_notes(cells: Sequence[Translation]) -> list[str]:
    """Explains how to read scores, with the sacreBLEU signatures and dtypes of these cells."""
    tokenized, detokenized = paper.SAME_CHECKPOINT_BLEU
    undefined = ", ".join(dict.fromkeys(cell.pair.upper() for cell in cells if cell.main_bleu.paper_bleu is None))
    return [
        "Paper BLEU is computed as the authors did: tokenized by Moses and case-sensitive, with ASCII quotation marks "
        "and German compounds split at hyphens. The printed rows are paper BLEU.",
        f"sacreBLEU scores detokenized text. The same checkpoint has scored {tokenized} in paper BLEU and "
        f"{detokenized} in sacreBLEU ({paper.SAME_CHECKPOINT_SOURCE}), so never compare the two.",
        *[f"{undefined}: {NO_PAPER_BLEU}"] * bool(undefined),
        *(f"sacreBLEU signature: {signature}" for signature in sorted({cell.main_bleu.signature for cell in cells})),
        *provenance_notes(cells),
    ]


def table2_notes(cells: Sequence[Translation]) -> list[str]:
    """Writes the notes of Table 2: how to read scores and costs, and the measured sustained rates."""
    notes = [
        *reading_notes(cells),
        "Each measured cell is one run with one seed; variation between seeds was not measured.",
        "Training cost by the paper's method is training time × devices × sustained rate (§6.1), summed over segments "
        "if a run changed devices. The paper's devices are rated in single precision, other devices in the dtype of "
        "the run. Counted cost is the number of operations in the model's matrix products.",
        *rate_notes(cells),
    ]
    notes += [paper.ONE_COST_NOTE, *(row.footnote for row in paper.TABLE_2 if row.footnote)]
    notes += [
        f"{cell.label} on {name}: {scores.text}."
        for cell in cells
        for name, scores in cell.bleu.items()
        if name != cell.test_set
    ]
    return notes
