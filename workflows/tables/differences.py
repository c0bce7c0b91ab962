"""Compares the experiment behind each measured cell with the paper's (§5, §6).

    differences(cells)      # [Difference("optimizer", "warmup 4000", "warmup 200", ("all",)), ...]

The paper's settings are those of the profile wmt14, for parsers of the profile wsj; `paper.Facts` are not settings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from model.config import TransformerConfig
from pipeline.evaluation.costs import paper_device
from pipeline.settings import AveragingSettings, DecodingSettings, TrainingSettings, differing
from workflows import paper
from workflows.profiles.translation import WMT14
from workflows.quantities import duration, rounded
from workflows.tables.measured import Measured
from workflows.tables.provenance import hardware
from workflows.tables.table import Difference
from workflows.tables.table3_rows import rows

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
    "attention": "attention function",
}
"""The fields of Table 3, and those that the paper only considers (§4) or uses only for parsing (§6.3)."""
DECODING_NAMES = {"beam_size": "beam", "length_penalty": "α", "max_extra_tokens": "output at most input +"}


@dataclass(frozen=True)
class Setup:
    """An experiment of the paper."""

    training: TrainingSettings
    averaging: AveragingSettings
    decoding: DecodingSettings
    facts: paper.Facts
    unprinted: frozenset[str] = frozenset()
    """Settings that the paper chose on its dev set and does not print."""


def in_table_2(model: Measured) -> Setup:
    """Returns the paper's experiment for a cell; for a pair or model that the paper lacks, that of EN-DE or base."""
    profile, name = WMT14.for_pair(model.cell.pair), model.cell.model if model.cell.model in WMT14.recipes else "base"
    recipe = profile.recipes[name]
    return Setup(recipe.training, recipe.averaging, profile.decoding, paper.facts(model.cell.pair, name))


def in_table_3(model: Measured) -> Setup:
    """Returns the paper's experiment for a row, or base's for a row that the paper lacks."""
    (row,) = rows(WMT14.grid, model.cell.model if model.cell.model in paper.VARIATIONS else "base")
    return Setup(row.training, AveragingSettings(last=1), WMT14.decoding, paper.variation_facts(row.name))


def competitor_text(config: TransformerConfig) -> str:
    """Describes a model that is not a Transformer."""
    sizes = ("n_layers", "d_model", "d_ff", "dropout")
    return f"{config.architecture}, " + ", ".join(f"{MODEL_NAMES[name]} {getattr(config, name)}" for name in sizes)


def is_near(number: float, other: float, tolerance: float) -> bool:
    """Whether `number` is within a relative `tolerance` of `other`."""
    return abs(number - other) <= tolerance * other


def _fields(names: Mapping[str, str], printed: object, here: object, unprinted: frozenset[str]) -> tuple[str, str]:
    """Lists the named settings that differ, as `N 6, h 8`, for both sides."""
    found = differing(vars(printed), vars(here))
    shown = {symbol: found[name] for name, symbol in names.items() if name in found and name not in unprinted}
    in_paper, ours = (", ".join(f"{symbol} {values[side]}" for symbol, values in shown.items()) for side in (0, 1))
    return in_paper, ours


def _data(model: Measured, printed: Setup) -> tuple[str, str]:
    facts = printed.facts
    is_same = model.is_on(facts.corpus) and is_near(sum(model.corpus.shards), facts.pairs, 0.1)
    return (
        f"{facts.corpus}, about {rounded(facts.pairs)} {'trees' if model.trees else 'pairs'}",
        "" if is_same else model.data_text,
    )


def _test_set(model: Measured, printed: Setup) -> tuple[str, str]:
    in_paper = printed.facts.test_text
    return in_paper, "" if model.test_text == in_paper else model.test_text


def _vocabulary(model: Measured, printed: Setup) -> tuple[str, str]:
    size, in_paper, pieces = model.config.vocabulary_size, printed.training.model.vocabulary_size, printed.facts.pieces
    here = "" if is_near(size, in_paper, 0.01) else f"{rounded(size)} pieces"
    if pieces == "word-pieces":
        here = f"{rounded(size)} pieces of a joint byte-pair encoding"
    return f"about {rounded(in_paper)} {pieces}", here


def _model(model: Measured, printed: Setup) -> tuple[str, str]:
    if model.config.architecture != "transformer":
        return "Transformer", competitor_text(model.config)
    return _fields(MODEL_NAMES, printed.training.model, model.config, printed.unprinted)


def _updates(model: Measured, printed: Setup) -> tuple[str, str]:
    in_paper, here = rounded(printed.training.updates), rounded(model.run.updates)
    return in_paper, here if model.run.updates != printed.training.updates else ""


def _tokens(model: Measured, printed: Setup) -> tuple[str, str]:
    source, target = (tokens / model.run.updates for tokens in (model.run.source_tokens, model.run.target_tokens))
    is_same = all(is_near(mean, printed.training.budget_tokens, 0.1) for mean in (source, target))
    budget = rounded(printed.training.budget_tokens)
    here = f"{rounded(source)} source and {rounded(target)} target on average"
    return f"about {budget} source and {budget} target", "" if is_same else here


def _optimizer(model: Measured, printed: Setup) -> tuple[str, str]:
    return _fields(OPTIMIZER_NAMES, printed.training.optimizer, model.cell.recipe.training.optimizer, printed.unprinted)


def _averaging(model: Measured, printed: Setup) -> tuple[str, str]:
    updates, last, every = model.averaged_updates, printed.averaging.last, printed.training.checkpoint_updates
    in_paper = f"last {last}, written every 10 minutes, {rounded(every)} updates" if last > 1 else "none"
    if len(updates) == last and all(after - before == every for before, after in pairwise(updates)):
        return in_paper, ""
    numbers = [rounded(update) for update in updates]
    shown = ", ".join(numbers if len(numbers) < 4 else (numbers[0], "…", *numbers[-2:]))
    return in_paper, f"last {len(updates)} (updates {shown})" if len(updates) > 1 else "none"


def _decoding(model: Measured, printed: Setup) -> tuple[str, str]:
    return _fields(DECODING_NAMES, printed.decoding, model.decoding.settings, printed.unprinted)


def _hardware(model: Measured, _printed: Setup) -> tuple[str, str]:
    in_paper = f"{paper.HARDWARE}, float32"
    as_printed = hardware(model.run, lambda name: f"NVIDIA {device}" if (device := paper_device(name)) else name)
    return in_paper, "" if as_printed == in_paper else hardware(model.run)


def _duration(model: Measured, printed: Setup) -> tuple[str, str]:
    facts, train_s = printed.facts, model.run.train_s
    here = f"{duration(train_s)}, {train_s / model.run.updates:.2g} s per update"
    return f"{facts.duration}, {facts.step_s} s per update", here


Aspect = Callable[[Measured, Setup], tuple[str, str]]
"""Returns the text for the paper and the text for here, which is empty if nothing differs."""
ASPECTS: dict[str, Aspect] = {
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


def differences(
    cells: Sequence[Measured],
    printed: Callable[[Measured], Setup] = in_table_2,
    aspects: Mapping[str, Aspect] = ASPECTS,
) -> list[Difference]:
    """Lists the `aspects` in which cells differ from the paper's experiments.

    Cells that differ in the same way share one entry.
    """
    entries: list[Difference] = []
    setups = [(model, printed(model)) for model in cells]
    for what, aspect in aspects.items():
        labels: dict[tuple[str, str], list[str]] = {}
        for model, setup in setups:
            in_paper, here = aspect(model, setup)
            if here:
                labels.setdefault((in_paper, here), []).append(model.cell.label)
        for (in_paper, here), of_cells in labels.items():
            is_everywhere = len(of_cells) == len(cells) > 1
            entries.append(Difference(what, in_paper, here, ("all",) if is_everywhere else tuple(of_cells)))
    return entries
