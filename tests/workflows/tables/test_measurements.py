from collections.abc import Callable

import pytest

from pipeline.text.lines import write_lines
from workflows.tables.measurements import Translation

Cell = Callable[..., Translation]


@pytest.mark.parametrize(
    ("lines", "taken"),
    [(3, [0, 1, 2]), (10, list(range(10))), (19, list(range(10))), (25, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18])],
)
def test_ten_samples_at_even_distances(cell: Cell, lines: int, taken: list[int]) -> None:
    inputs = cell("en-de", "base")
    for path in (inputs.evaluation_set.source, inputs.evaluation_set.references):
        write_lines(path, [f"{path.suffix[1:]} {i}" for i in range(lines)])
    write_lines(inputs.hypotheses.folder / "test_a.de", [f"ours {i}" for i in range(lines)])
    samples = inputs.samples
    assert [(sample.source, sample.reference, sample.hypothesis) for sample in samples] == [
        (f"en {i}", f"de {i}", f"ours {i}") for i in taken
    ]
