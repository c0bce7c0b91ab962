"""The drawings show every weight that can be seen, in the colour of its head, from word to word."""

import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.attention.translated import Attended, Pieces
from workflows.figures.bundles import FAINT, HEAD_COLORS, Panel, _rows, color_of, draw

SIDE = Pieces(("gard", "en", "<b>", "⟨end⟩"), ((0, 2), (2, 3), (3, 4)), (3,))


@pytest.fixture
def attended() -> Attended:
    """Two heads over four pieces: one looks at itself, the other at the first piece and a little elsewhere."""
    weights = np.zeros((1, 2, 4, 4), np.float32)
    weights[0, 0] = np.eye(4)
    weights[0, 1] = [0.9, 0.06, 0.035, FAINT / 2]
    return Attended("", "", 0.0, SIDE, SIDE, SIDE, {"encoder": weights, "decoder": weights, "cross": weights})


def lines_of(svg: str, color: str) -> list[float]:
    """The opacities of the lines in a colour; squares and bars are other elements or colours."""
    drawn = re.findall(rf'<path d="M[^Z"]*" clip-path[^>]*style="[^"]*stroke: {color}[^"]*"', svg)
    return [float(found[1]) if (found := re.search(r"stroke-opacity: ([\d.]+)", one)) else 1.0 for one in drawn]


def test_lines_are_the_weights(attended: Attended, tmp_path: Path) -> None:
    """As many as are not faint, as opaque as the weights are; of one word, those of its pieces alone."""
    draw([Panel(attended, "encoder", 0, (0, 1), None)], "all", tmp_path / "all")
    svg = (tmp_path / "all.svg").read_text(encoding="utf-8")
    assert lines_of(svg, color_of(0)) == [1.0] * 4
    assert sorted(lines_of(svg, color_of(1))) == pytest.approx(sorted([0.9, 0.06, 0.035] * 4))
    draw([Panel(attended, "encoder", 0, (1,), 0)], "one", tmp_path / "one")
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert len(lines_of(svg, color_of(1))) == 6
    assert not lines_of(svg, color_of(0))


def test_text_is_text_and_names_what_is_drawn(attended: Attended, tmp_path: Path) -> None:
    """Pieces, title and heads can be searched for; markup among them is escaped; the PNG is an image."""
    panels = [Panel(attended, "cross", 0, (0,), None), Panel(attended, "cross", 0, (0, 1), 0)]
    draw(panels, "en-de", tmp_path / "figure")
    svg = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for shown in ("en-de", "layer 1, head 1", "“garden”: layer 1, heads 1, 2", "gard", "&lt;b&gt;", "⟨end⟩"):
        assert f">{shown}</text>" in svg
    assert svg.count(">⟨end⟩</text>") == 4
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_figure_is_the_same_file(attended: Attended, tmp_path: Path) -> None:
    """No date and no random name is in it."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        draw([Panel(attended, "encoder", 0, (0, 1), 1)], "t", tmp_path / name / "figure3")
    for kind in ("svg", "png"):
        first, second = ((tmp_path / name / f"figure3.{kind}").read_bytes() for name in ("a", "b"))
        assert first == second


def test_pieces_of_a_word_stand_together() -> None:
    """Between words there is more room than within one; every head has a colour."""
    rows = _rows(SIDE)
    assert rows[1] - rows[0] < rows[2] - rows[1] == rows[3] - rows[2]
    assert len(set(HEAD_COLORS)) == 16
    assert color_of(17) == color_of(1)
