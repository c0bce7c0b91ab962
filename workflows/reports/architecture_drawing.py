"""Draws Figures 1 and 2 of the paper from a model as it was built: its modules, their shapes and parameters.

    architecture(Transformer(config))        # SVG that stands inside an HTML page and takes its text colour
    architecture(built(config))              # the same without memory for weights

Layers that are alike are drawn once, with their number beside them. A module of a kind that the paper does not have is
drawn under the name of its class.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from markupsafe import Markup
from torch import nn

from model.attention import MultiHeadAttention
from model.config import TransformerConfig
from model.dropout import Dropout
from model.transformer import FeedForward, Transformer

BOX_PX, HEIGHT_PX, GAP_PX = 240.0, 40.0, 18.0
"""Width of a box, its height, and the distance to the next."""
LEFT_PX, RIGHT_PX, TOP_PX = 70.0, 420.0, 30.0
COLORS = {"attention": "#d1731c", "norm": "#8d8a1f", "feed": "#2b9dba", "embedding": "#cf4257", "output": "#a05ec0"}
TITLES = {"self_attention": "Masked Multi-Head Attention", "cross_attention": "Multi-Head Attention"}


class Box(NamedTuple):
    """One module as it is drawn."""

    title: str
    shape: str
    color: str
    parameters: int


def built(config: TransformerConfig) -> Transformer:
    """Builds a model on torch's meta device, which allocates no memory."""
    with torch.device("meta"):
        return Transformer(config)


def architecture(model: Transformer) -> Markup:
    """Returns Figure 1, the whole model, and Figure 2, its first attention, as one SVG."""
    config = model.config
    encoder, decoder = _stack(model.encoder), _stack(nn.ModuleList(model.decoder))
    tables = [Box("Embedding", f"{config.vocabulary_size:,} × {config.d_model}", "embedding", _count(model.embedding))]
    tables.append(
        Box("Sinusoids", f"any × {config.d_model}", "embedding", 0)
        if model.positions is None
        else Box(
            "Learned positions",
            " × ".join(map(str, model.positions.weight.shape)),
            "embedding",
            _count(model.positions),
        )
    )
    output = [
        Box("Linear", f"{config.d_model} → {config.vocabulary_size:,}, the embedding", "output", 0),
        Box("Softmax", f"{config.vocabulary_size:,} probabilities", "output", 0),
    ]
    height_px = TOP_PX + _height(decoder, tables, output) + 60
    bottom = height_px - 40
    parts, top = _column(encoder, tables, [], LEFT_PX, bottom, "source")
    from_encoder = (LEFT_PX + BOX_PX / 2, top)
    more, _ = _column(decoder, tables, output, RIGHT_PX, bottom, "target, shifted right", from_encoder)
    parts += more
    total = _count(model)
    parts.append(_text(LEFT_PX, TOP_PX - 8, f"{total:,} parameters in all", "start", bold=True))
    first = next(module for module in model.modules() if isinstance(module, MultiHeadAttention))
    parts += _attention(first, RIGHT_PX + BOX_PX + 90, TOP_PX)
    width_px = RIGHT_PX + BOX_PX + 90 + 2 * BOX_PX + 40
    label = (
        f"Encoder of {len(model.encoder)} and decoder of {len(model.decoder)} layers, d_model {config.d_model}, "
        f"{first.n_heads} heads, {total:,} parameters; beside them one attention"
    )
    opening = Markup(
        '<svg role="img" aria-label="{}" viewBox="0 0 {:.0f} {:.0f}" width="{:.0f}" font-size="13">'
    ).format(label, width_px, height_px, width_px)
    return opening + Markup("").join(parts) + Markup("</svg>")


def describe(name: str, module: nn.Module) -> Box:
    """Returns how a module of a layer is drawn."""
    parameters = _count(module)
    match module:
        case MultiHeadAttention():
            title = TITLES.get(name, "Multi-Head Attention")
            window = getattr(module, "window", None)
            shape = f"h {module.n_heads}, d_k {module.d_k}, d_v {module.d_v}" + (f", window {window}" if window else "")
            return Box(title, shape, "attention", parameters)
        case nn.LayerNorm():
            return Box("Add & Norm", f"{module.normalized_shape[0]}", "norm", parameters)
        case FeedForward():
            sizes = module.w_1.in_features, module.w_1.out_features, module.w_2.out_features
            return Box("Feed Forward", " → ".join(map(str, sizes)), "feed", parameters)
    return Box(type(module).__name__, "", "norm", parameters)


class _Layers(NamedTuple):
    """Layers in a row that are alike."""

    n_layers: int
    boxes: tuple[Box, ...]
    names: tuple[str, ...]


def _stack(layers: nn.ModuleList) -> list[_Layers]:
    described = []
    for layer in layers:
        children = [(name, child) for name, child in layer.named_children() if not isinstance(child, Dropout)]
        described.append(
            (tuple(describe(name, child) for name, child in children), tuple(name for name, _ in children))
        )
    return [_Layers(len(list(alike)), boxes, names) for (boxes, names), alike in groupby(described)]


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _height(stack: Sequence[_Layers], tables: Sequence[Box], output: Sequence[Box]) -> float:
    boxes = len(tables) + len(output) + sum(len(layers.boxes) for layers in stack)
    return boxes * (HEIGHT_PX + GAP_PX) + len(stack) * 2 * GAP_PX


def _column(
    stack: Sequence[_Layers],
    tables: Iterable[Box],
    output: Iterable[Box],
    x: float,
    bottom: float,
    below: str,
    encoder: tuple[float, float] | None = None,
) -> tuple[list[Markup], float]:
    """Draws one of the two stacks from the bottom up; returns the drawing and where it ends."""
    parts, y = [_text(x + BOX_PX / 2, bottom + 18, below, "middle")], bottom
    middle = x + BOX_PX / 2

    def put(box: Box) -> float:
        nonlocal y
        y -= HEIGHT_PX + GAP_PX
        parts.append(_arrow(middle, y + HEIGHT_PX + GAP_PX, middle, y + HEIGHT_PX))
        parts.append(_box(box, x, y))
        return y

    for box in tables:
        put(box)
    for layers in stack:
        y -= GAP_PX
        start = y
        parts.append(_line(middle, start + GAP_PX, middle, start))
        residual = y - GAP_PX / 2
        for box, name in zip(layers.boxes, layers.names, strict=True):
            at = put(box)
            if box.title == "Add & Norm":  # the residual around the sub-layer before
                edge, side = x + BOX_PX, x + BOX_PX + 14
                parts.append(_path(f"M{middle:g},{residual:g} H{side:g} V{at + HEIGHT_PX / 2:g} H{edge:g}"))
                residual = at - GAP_PX / 2
            if name == "cross_attention" and encoder:
                parts.append(
                    _path(f"M{encoder[0]:g},{encoder[1]:g} V{encoder[1] - 12:g} H{x - 60:g} V{at + 28:g} H{x:g}", True)
                )
        y -= GAP_PX / 2
        frame = Markup(
            '<rect x="{:g}" y="{:g}" width="{:g}" height="{:g}" rx="8" fill="none" stroke="currentColor" '
            'stroke-opacity=".35"/>'
        )
        parts.append(frame.format(x - 12, y, BOX_PX + 36, start - y))
        parts.append(_text(x - 20, (start + y) / 2, f"{layers.n_layers}×", "end", bold=True))
        parts.append(_line(middle, y + GAP_PX / 2, middle, y))
    for box in output:
        put(box)
    return parts, y


def _attention(attention: MultiHeadAttention, x: float, y: float) -> list[Markup]:
    """Draws Figure 2: the steps of one head on the left, the projections around all heads on the right."""
    d_k, d_v, heads = attention.d_k, attention.d_v, attention.n_heads
    d_model = attention.w_q.in_features
    steps = [
        ("MatMul", f"weights × V: d_v {d_v}"),
        ("SoftMax", "rows sum to 1"),
        ("Mask", "decoder, padding"),
        ("Scale", f"1 / √{d_k}"),
        ("MatMul", f"Q Kᵀ: d_k {d_k}"),
    ]
    queries, joined, output = (
        attention.w_q.out_features,
        attention.w_o.in_features,
        attention.w_o.out_features,
    )
    whole = [
        ("Linear W_O", f"{joined} → {output}"),
        ("Concat", f"{heads} × {d_v} = {joined}"),
        ("Scaled Dot-Product Attention", f"{heads} heads"),
        ("Linear W_Q, W_K, W_V", f"{d_model} → {queries}, {heads * d_k}, {heads * d_v}"),
    ]
    parts = [
        _text(x, y - 8, "Scaled Dot-Product Attention", "start", bold=True),
        _text(x + BOX_PX + 30, y - 8, "Multi-Head Attention", "start", bold=True),
    ]
    for column, boxes in enumerate((steps, whole)):
        left, top = x + column * (BOX_PX + 30), y + 10
        for number, (title, shape) in enumerate(boxes):
            color = "attention" if "Attention" in title or title == "MatMul" else "norm"
            if number:
                parts.append(_arrow(left + BOX_PX / 2, top, left + BOX_PX / 2, top - GAP_PX))
            parts.append(_box(Box(title, shape, color, 0), left, top))
            top += HEIGHT_PX + GAP_PX
        parts.append(_text(left + BOX_PX / 2, top + 2, "Q, K, V", "middle"))
        parts.append(_arrow(left + BOX_PX / 2, top - 10, left + BOX_PX / 2, top - GAP_PX))
    return parts


def _box(box: Box, x: float, y: float) -> Markup:
    color = COLORS[box.color]
    shape = Markup(
        '<rect x="{:g}" y="{:g}" width="{:g}" height="{:g}" rx="5" fill="{}" fill-opacity=".16" stroke="{}"/>'
    ).format(x, y, BOX_PX, HEIGHT_PX, color, color)
    count = f" · {box.parameters:,}" if box.parameters else ""
    return (
        shape
        + _text(x + BOX_PX / 2, y + 16, box.title, "middle", bold=True)
        + _text(x + BOX_PX / 2, y + 32, f"{box.shape}{count}", "middle", size=11.5)
    )


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False, size: float = 13) -> Markup:
    weight = Markup(' font-weight="600"') if bold else Markup("")
    return Markup('<text x="{:g}" y="{:g}" text-anchor="{}" font-size="{:g}" fill="currentColor"{}>{}</text>').format(
        x, y, anchor, size, weight, text
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _path(f"M{x1:g},{y1:g} L{x2:g},{y2:g}")


def _arrow(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _path(f"M{x1:g},{y1:g} L{x2:g},{y2:g}", True)


def _path(d: str, head: bool = False) -> Markup:
    """Draws a line; with a small triangle where it ends, pointing the way of its last part."""
    line = Markup('<path d="{}" fill="none" stroke="currentColor" stroke-opacity=".6"/>').format(d)
    if not head:
        return line
    last = d.rsplit(" ", 1)[1]
    if last[0] == "H":
        x, y = float(last[1:]), float(d.rsplit(" ", 2)[1][1:])
        points = f"{x:g},{y:g} {x - 6:g},{y - 3:g} {x - 6:g},{y + 3:g}"
    else:
        x, y = (float(number) for number in last[1:].split(","))
        points = f"{x:g},{y:g} {x - 3:g},{y + 6:g} {x + 3:g},{y + 6:g}"
    return line + Markup('<polygon points="{}" fill="currentColor" fill-opacity=".6"/>').format(points)
