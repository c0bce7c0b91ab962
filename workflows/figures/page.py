"""Renders the page on which one picks layer, head, word and attention: one HTML file that needs nothing outside itself.

The page's policy allows its own script and style by their sha256 and nothing else.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from model.recording import KINDS, Kind
from pipeline.attention.heads import HeadsFigures
from pipeline.attention.relations import RelationFigures
from pipeline.attention.translated import Attended, Pieces
from pipeline.settings import DecodingSettings
from workflows.figures.bundles import HEAD_COLORS

KIND_NAMES: dict[Kind, str] = {
    "encoder": "encoder: source to source",
    "decoder": "decoder: output to output",
    "cross": "cross: output to source",
}
TEMPLATES = Path(__file__).parent / "templates"


class Figure(NamedTuple):
    """A drawing on the page."""

    number: int
    path: Path
    """The SVG file."""
    caption: str

    @property
    def svg(self) -> str:
        """The file in base64."""
        return base64.b64encode(self.path.read_bytes()).decode()


class Start(NamedTuple):
    """What the page shows first; counted from 0."""

    kind: Kind = "encoder"
    layer: int = 0
    heads: tuple[int, ...] = (0,)


def render(
    model: str,
    sentences: Sequence[Attended],
    settings: DecodingSettings,
    *,
    figures: Sequence[Figure] = (),
    heads: HeadsFigures | None = None,
    relations: Sequence[RelationFigures] = (),
    start: Start | None = None,
) -> str:
    """Returns the page."""
    start = start or Start()
    script = (TEMPLATES / "attention.js").read_text(encoding="utf-8")
    style = (TEMPLATES / "attention.css").read_text(encoding="utf-8")
    policy = [
        "default-src 'none'",
        "img-src data:",
        f"script-src {_source(script)}",
        f"style-src {_source(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    data = {
        "kinds": KIND_NAMES,
        "colors": HEAD_COLORS,
        "start": start._asdict(),
        "sentences": [described(one) for one in sentences],
    }
    environment = Environment(
        loader=PackageLoader("workflows.figures"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("attention.html.j2").render(
        model=model,
        policy="; ".join(policy),
        style=Markup(style),
        script=Markup(script),
        data=_inside_script(data),
        beam_size=settings.beam_size,
        length_penalty=settings.length_penalty,
        figures=figures,
        heads=heads,
        relations=relations,
        kinds=KIND_NAMES,
    )


def described(attended: Attended) -> dict[str, Any]:
    """Returns a translation with its weights as the page's script reads them."""

    def side(pieces: Pieces) -> dict[str, Any]:
        return {"texts": pieces.texts, "words": pieces.words, "separators": pieces.separators}

    return {
        "sentence": attended.sentence,
        "translation": attended.translation,
        "score": attended.score,
        **{name: side(getattr(attended, name)) for name in ("source", "read", "written")},
        "weights": {kind: _packed(attended.weights[kind]) for kind in KINDS},
    }


def _packed(weights: Any) -> dict[str, Any]:
    """Packs weights as little-endian 16-bit integers in base64: 65535 stands for 1."""
    rounded = np.rint(weights.clip(0, 1) * 65535).astype("<u2")
    return {"shape": weights.shape, "data": base64.b64encode(rounded.tobytes()).decode()}


def _inside_script(value: Any) -> Markup:
    """Returns JSON that no sentence can break out of."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _source(text: str) -> str:
    """Returns how a policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
