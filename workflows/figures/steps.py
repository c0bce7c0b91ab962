"""The attention figures as steps of the DAG: `python -m workflows.attention_figures` and `aiayn figures`."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.store import Store
from workflows.engine.dag import Stage
from workflows.engine.runner import Watcher, run
from workflows.figures import trained
from workflows.figures.drawing import AttentionFigures, FigureSettings, draw_figures

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
    settings = FigureSettings(
        name=model.name,
        sentences=tuple(sentences or model.sentences()),
        layer=layer,
        heads=numbers(heads) if heads else (),
        words=tuple(words or ()),
    )
    step = replace(DRAW(f"figures {model.name}", model.checkpoint, settings), out=out.absolute() if out else None)
    # No run links to these artifacts; the lock keeps `aiayn clean` from deleting them.
    with in_store.lock(f"attention_figures-{secrets.token_hex(8)}", step.label) as lock:
        lock.take()
        (figures,) = run([step], in_store, watchers, address)
    return figures


def numbers(text: str) -> tuple[int, ...]:
    """Parses `1,3`. Raises UserError if it is not a list of numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"--heads {text}: write numbers separated by commas, e.g. 1,3")
    return tuple(dict.fromkeys(int(part) for part in parts))
