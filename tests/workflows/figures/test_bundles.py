import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.attention.translated import Attended, Pieces
from workflows.figures.bundles import FAINT, LINE, Panel, color_of, draw

SIDE = Pieces(("gard", "en", "<b>", "⟨end⟩"), ((0, 2), (2, 3), (3, 4)), (3,))


@pytest.fixture
def attended() -> Attended:
    """Two heads over four pieces: one attends to itself, the other to the first piece and a little elsewhere."""
    weights = np.zeros((1, 2, 4, 4), np.float32)
    weights[0, 0] = np.eye(4)
    weights[0, 1] = [0.9, 0.06, 0.035, FAINT / 2]
    return Attended("", "", 0.0, SIDE, SIDE, SIDE, {"encoder": weights, "decoder": weights, "cross": weights})


def lines_of(svg: str, color: str) -> list[float]:
    """The opacities of the lines of a colour; squares and bars have other elements or colours."""
    drawn = re.findall(rf'<path d="M[^Z"]*" clip-path[^>]*style="[^"]*stroke: {color}[^"]*"', svg)
    return [float(opacity[1]) if (opacity := re.search(r"stroke-opacity: ([\d.]+)", line)) else 1.0 for line in drawn]


def test_lines_are_the_weights(attended: Attended, tmp_path: Path) -> None:
    draw([Panel(attended, "encoder", 0, (0, 1), None)], "all", tmp_path / "all")
    svg = (tmp_path / "all.svg").read_text(encoding="utf-8")
    assert lines_of(svg, color_of(0)) == [1.0] * 4
    assert sorted(lines_of(svg, color_of(1))) == pytest.approx(sorted([0.9, 0.06, 0.035] * 4))
    draw([Panel(attended, "encoder", 0, (1,), 0)], "one " * 20, tmp_path / "one")
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert len(lines_of(svg, color_of(1))) == 6
    assert not lines_of(svg, color_of(0))
    titles = [*re.findall(r">([^<\n]+)</t", svg), *Panel(attended, "encoder", 0, (0, 1) * 12, 0).title.split("\n")]
    assert max(map(len, titles)) <= LINE
