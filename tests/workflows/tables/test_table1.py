import pytest

from tests.support.tiny_complexity import counts, measurements, theory_s
from workflows.tables.table1 import compute


@pytest.mark.parametrize(
    ("slower", "found"),
    [
        (1, "self-attention takes longer at every n"),
        (6, "self-attention takes longer than recurrence from n = 192"),
        (100, "recurrence takes longer at every n"),
    ],
)
def test_the_crossing_is_where_self_attention_becomes_the_slower(slower: int, found: str) -> None:
    """Self-attention takes n²·d, recurrence `slower` times n·d²; d is 32, n 64 to 512."""
    table = compute(counts(), measurements(lambda name, n, d: theory_s(name, n, d) * slower ** (name == "recurrent")))
    assert any(f"By time, at d = 32, {found}." in note for note in table.notes)


def test_exponents_far_from_the_theory_are_named() -> None:
    table = compute(counts(), measurements(lambda name, n, d: theory_s(name, n, d) * (d if name == "recurrent" else 1)))
    assert "More than 0.15 from the theory: recurrent, time over d (3.00 instead of 2)." in table.notes
