"""The attention figures as steps of the DAG, and what both commands that draw them share.

artifact = make(request, out=None)       # from the store, or drawn now
"""

import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.attention import heads, relations
from pipeline.attention.heads import HeadSettings
from pipeline.attention.relations import RelationSettings
from pipeline.errors import UserError
from pipeline.store.artifacts import EncodedDataset
from pipeline.store.object_store import store_at
from pipeline.store.store import LocalStore
from workflows.console.command import console
from workflows.engine.dag import Stage, Step
from workflows.engine.progress import View
from workflows.engine.runner import run
from workflows.figures import trained
from workflows.figures.drawing import AttentionFigures, FigureSettings, draw_figures
from workflows.figures.trained import TrainedModel
from workflows.runs.names import named_folder

EXAMINE_HEADS = Stage("heads.examine", heads.examine, heads.Heads, gpus=1)
MEASURE_RELATIONS = Stage("relations.measure", relations.measure, relations.Relations, gpus=1)
DRAW = Stage("attention_figures.draw", draw_figures, AttentionFigures, gpus=1, follows_source=True)


@dataclass(frozen=True)
class FigureRequest:
    """What the user wants drawn, of which model."""

    store: LocalStore
    model: TrainedModel
    settings: FigureSettings
    address: str | None = None


def request(
    store: str | Path,
    *,
    folder: Path | None = None,
    name: str | None = None,
    sentences: list[str] | None = None,
    layer: int | None = None,
    heads: str | None = None,
    word: str | None = None,
    dataset: Path | None = None,
    address: str | None = None,
) -> FigureRequest:
    """Makes a request from the options. Raises UserError if they are invalid or there is no such model."""
    if folder and name:
        raise UserError("--model and --run both name a model; give one of them")
    in_store = store_at(store)
    model = (
        trained.at(folder, in_store) if folder else trained.named(in_store, name) if name else trained.newest(in_store)
    )
    if dataset:
        model = replace(model, dataset=EncodedDataset(named_folder("prepare", dataset, "dataset.json")))
    settings = FigureSettings(
        name=model.name,
        sentences=tuple(sentences or model.sentences()),
        layer=layer,
        heads=numbers(heads) if heads else (),
        word=word,
    )
    return FigureRequest(in_store, model, settings, address)


def numbers(text: str) -> tuple[int, ...]:
    """Reads `1,3`. Raises UserError if it is no list of numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"--heads {text}: write numbers with commas between them, e.g. 1,3")
    return tuple(dict.fromkeys(int(part) for part in parts))


def figure_step(wanted: FigureRequest) -> Step[AttentionFigures]:
    """Returns the step that draws; heads are examined on the model's dev split, relations on generated text."""
    model = wanted.model
    examined = measured = None
    if model.dataset:
        examined = EXAMINE_HEADS(f"heads {model.name}", model.checkpoint, model.dataset, HeadSettings())
    if model.generated:
        measured = MEASURE_RELATIONS(f"relations {model.name}", model.checkpoint, model.generated, RelationSettings())
    return DRAW(f"figures {model.name}", model.checkpoint, examined, measured, wanted.settings)


def make(wanted: FigureRequest, out: Path | None = None) -> AttentionFigures:
    """Draws what is not in the store, or in `out` if given, and returns it."""
    step = figure_step(wanted)
    if out:
        step = replace(step, out=out.absolute())
    # No run has a name for what this command needs; as long as the lock is held, `aiayn clean` deletes nothing.
    with wanted.store.lock(f"attention_figures-{secrets.token_hex(8)}", step.label) as lock:
        lock.take()
        (figures,) = run([step], wanted.store, [View(console)], wanted.address)
    return figures
