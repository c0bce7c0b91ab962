"""The attention figures as steps of the DAG: `python -m workflows.attention_figures` and `aiayn figures`."""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.attention.records import HeadSettings, RelationSettings
from pipeline.errors import UserError
from pipeline.store.artifacts import EvaluationSet
from pipeline.store.store import Store
from workflows.engine.dag import Stage, Step
from workflows.engine.runner import Watcher, run
from workflows.figures import trained
from workflows.figures.drawing import AttentionFigures, FigureSettings, draw_figures
from workflows.figures.trained import ExaminedModel
from workflows.names import named_folder
from workflows.stages import EXAMINE_HEADS, MEASURE_RELATIONS

logger = logging.getLogger(__name__)

DRAW = Stage("attention_figures.draw", draw_figures, AttentionFigures, gpus=1, follows_source=True)


def draw(
    store: str | Path,
    watchers: Sequence[Watcher],
    *,
    folder: Path | None = None,
    sentences: list[str] | None = None,
    layer: int | None = None,
    heads: str | None = None,
    words: list[str] | None = None,
    dev: Path | None = None,
    out: Path | None = None,
    address: str | None = None,
) -> AttentionFigures:
    """Draws the figures of a model, by default the newest, unless the store or `out` has them. Returns their artifact.

    Raises UserError for an invalid option or an unknown model.
    """
    if len(words or ()) > 2:
        raise UserError(f"--word {' --word '.join(words or ())}: give at most two words, for Figures 3 and 4")
    in_store = Store.at(store).checked()
    model = trained.at(folder, in_store) if folder else trained.newest(in_store)
    if dev:
        model = replace(model, dev=_dev_set(model, dev))
    elif not model.dev:
        logger.warning("the store has no dev set of %s: heads are not examined; name a dev set with --dev", model.name)
    settings = FigureSettings(
        name=model.name,
        sentences=tuple(sentences or model.sentences()),
        layer=layer,
        heads=numbers(heads) if heads else (),
        words=tuple(words or ()),
    )
    step = figure_step(model, settings)
    if out:
        step = replace(step, out=out.absolute())
    # No run links to these artifacts; the lock keeps `aiayn clean` from deleting them.
    with in_store.lock(f"attention_figures-{secrets.token_hex(8)}", step.label) as lock:
        lock.take()
        (figures,) = run([step], in_store, watchers, address)
    return figures


def _dev_set(model: ExaminedModel, folder: Path) -> EvaluationSet:
    """Returns the evaluation set in a folder. Raises UserError if its languages are not the model's."""
    chosen = EvaluationSet(named_folder("prepare", folder, "evaluation_set.json"))
    if model.dev:
        pair, of_model = (f"{text.source}-{text.target}" for text in (chosen.load(), model.dev.load()))
        if pair != of_model:
            raise UserError(f"--dev {folder} is {pair} text, but the model is {of_model}; name {of_model} text")
    return chosen


def numbers(text: str) -> tuple[int, ...]:
    """Parses `1,3`. Raises UserError if it is not a list of numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"--heads {text}: write numbers separated by commas, e.g. 1,3")
    return tuple(dict.fromkeys(int(part) for part in parts))


def figure_step(model: ExaminedModel, settings: FigureSettings) -> Step[AttentionFigures]:
    """Returns the drawing step. It examines heads on the model's dev set, and relations on generated text."""
    examined = measured = None
    if model.dev:
        examined = EXAMINE_HEADS(f"heads {model.name}", model.checkpoint, model.dev, HeadSettings())
    if model.generated:
        measured = MEASURE_RELATIONS(f"relations {model.name}", model.checkpoint, model.generated, RelationSettings())
    return DRAW(f"figures {model.name}", model.checkpoint, examined, measured, settings)
