"""Renders the interactive attention page (layer, heads, word, kind of attention) as one self-contained HTML file."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.attention.recording import KINDS, Kind
from pipeline.attention.translated import Attended, Pieces
from pipeline.settings import DecodingSettings
from workflows.figures.bundles import HEAD_COLORS
from workflows.tables.render import template

KIND_NAMES: dict[Kind, str] = {
    "encoder": "encoder: source to source",
    "decoder": "decoder: output to output",
    "cross": "cross: output to source",
}


def render(
    model: str,
    sentences: Sequence[Attended],
    settings: DecodingSettings,
    start: Mapping[str, Any],
    figures: Mapping[str, Path],
) -> str:
    """Returns the page of `figures`, SVG files by caption. It opens with `start`; its numbers are from 0."""
    page = template("workflows.figures", "attention.html.j2")
    page.environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return page.render(
        model=model,
        data={"kinds": KIND_NAMES, "colors": HEAD_COLORS, "start": start, "sentences": [*map(described, sentences)]},
        beam_size=settings.beam_size,
        length_penalty=settings.length_penalty,
        figures={caption: base64.b64encode(path.read_bytes()).decode() for caption, path in figures.items()},
    )


def described(attended: Attended) -> dict[str, Any]:
    """Returns a translation and its weights in the format of the page's script."""
    fields = {name: each._asdict() if isinstance(each, Pieces) else each for name, each in vars(attended).items()}
    return {**fields, "weights": {kind: _packed(attended.weights[kind]) for kind in KINDS}}


def _packed(weights: Any) -> dict[str, Any]:
    """Packs weights as little-endian 16-bit integers in base64: 65535 means 1."""
    rounded = np.rint(weights.clip(0, 1) * 65535).astype("<u2")
    return {"shape": weights.shape, "data": base64.b64encode(rounded.tobytes()).decode()}
