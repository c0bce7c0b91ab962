import re
from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from workflows.reports.page import marked

WORDS = st.lists(st.sampled_from(["das", "Haus", "<b>", "&", "steht", "."]), max_size=8).map(" ".join)


def test_words_that_the_other_side_lacks_are_marked() -> None:
    assert marked("Das alte Haus steht .", "Das Haus stand .") == "Das <mark>alte</mark> Haus <mark>steht</mark> ."
    assert marked("a b c", "") == "<mark>a b c</mark>"
    assert marked("", "a") == ""
    assert marked("<b> x", "x") == "<mark>&lt;b&gt;</mark> x"


@given(WORDS, WORDS)
def test_marks_leave_what_both_have(text: str, other: str) -> None:
    shown = str(marked(text, other))
    assert unescape(re.sub("</?mark>", "", shown)) == text
    theirs = iter(other.split())
    assert all(word in theirs for word in unescape(re.sub("<mark>.*?</mark>", "", shown)).split())
    assert ("<mark>" in shown or "<mark>" in str(marked(other, text))) == (text.split() != other.split())
