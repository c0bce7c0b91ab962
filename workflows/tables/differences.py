"""Compares the experiment behind each measured cell with the paper's (§5, §6).

    differences(models)      # [Difference("optimizer", "warmup 4000", "warmup 200", ("all",)), ...]

The paper's settings are those of the profile wmt14, for parsers of the profile wsj; `paper.Facts` are not settings.
"""

from collections.abc import Callable, Mapping, Sequence

from pipeline.settings import AveragingSettings, DecodingSettings, TrainingSettings
from workflows import paper
from workflows.profiles.translation import WMT14
from workflows.quantities import rounded
from workflows.tables.facts import ALIKE, MODEL, OPTIMIZER, SEARCH, Fact, facts, of_settings
from workflows.tables.measured import Measured
from workflows.tables.table import Difference


def in_table_2(model: Measured) -> dict[str, Fact]:
    """Returns the facts of a cell; for a pair or model that the paper lacks, those of EN-DE or base."""
    profile, name = WMT14.for_pair(model.cell.pair), model.cell.model if model.cell.model in WMT14.recipes else "base"
    recipe = profile.recipes[name]
    return printed(recipe.training, recipe.averaging, profile.decoding, paper.facts(model.cell.pair, name))


def printed(
    training: TrainingSettings,
    averaging: AveragingSettings,
    decoding: DecodingSettings,
    stated: paper.Facts,
    *unprinted: str,
) -> dict[str, Fact]:
    """Returns the facts of an experiment of the paper, which chose `unprinted` settings on its dev set."""
    size, budget = training.model.vocabulary_size, training.budget_tokens
    last, every = averaging.last, training.checkpoint_updates
    time = {"training time": Fact(f"{stated.duration}, {stated.step_s} s per update")} if stated.duration else {}
    return time | {
        "training data": Fact(f"{stated.corpus}, about {rounded(stated.pairs)} {stated.unit}", (stated.pairs,), 0.1),
        "test set": Fact(stated.test_text),
        "vocabulary": Fact(f"about {rounded(size)} {stated.pieces}", (size,) * (stated.pieces == "pieces"), 0.01),
        "tokenisation": Fact(stated.tokenisation),
        "cleaning": Fact("not stated"),
        "longest training sentence": Fact(stated.longest),
        "model": of_settings(MODEL, training.model, *unprinted),
        "initialisation": Fact("not stated"),
        "updates": Fact(rounded(training.updates), (training.updates,)),
        "tokens per update": Fact(f"about {rounded(budget)} source and {rounded(budget)} target", (budget,) * 2, 0.1),
        "lengths in an update": Fact(ALIKE),
        "optimizer": of_settings(OPTIMIZER, training.optimizer, *unprinted),
        "form of label smoothing": Fact("cited; authors' code: ε_ls / (V − 1) on each of the other pieces"),
        "averaged checkpoints": Fact(
            f"last {last}, written every 10 minutes, {rounded(every)} updates" if last > 1 else "none",
            (last, *(every,) * (last - 1)),
        ),
        "decoding": of_settings(SEARCH, decoding),
        "hardware": Fact(f"{paper.HARDWARE}, float32"),
    }


def differences(
    models: Sequence[Measured], in_paper: Callable[[Measured], Mapping[str, Fact]] = in_table_2
) -> list[Difference]:
    """Lists the facts in which models differ from the paper's; those that differ in the same way share an entry."""
    labels: dict[str, dict[tuple[str, str], list[str]]] = {}
    for model in models:
        there = in_paper(model)
        for what, here in facts(model).items():
            of_fact = labels.setdefault(what, {})
            if what in there and (texts := there[what].against(here)):
                of_fact.setdefault(texts, []).append(model.cell.label)
    return [
        Difference(what, *texts, ("all",) if len(of_models) == len(models) > 1 else tuple(of_models))
        for what, of_fact in labels.items()
        for texts, of_models in of_fact.items()
    ]
