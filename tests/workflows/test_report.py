"""The HTML report: complete, self-contained, and safe with text from outside."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline.artifacts import Context
from workflows.measured import MeasuredInputs
from workflows.tabulating import tabulate


class Reader(HTMLParser):
    """Collects text and tags; notes elements that are closed in the wrong order."""

    VOID = frozenset({"meta", "br", "hr", "link", "img", "input", "use", "path"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.misnested: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID and self._open.pop() != tag:
            self.misnested.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def report(cell: Callable[..., MeasuredInputs], tmp_path: Path) -> str:
    """The report of two cells."""
    (tmp_path / "table").mkdir()
    table = tabulate(Context(tmp_path / "table"), [cell("en-de", "base"), cell("en-fr", "big")])
    return (table.folder / "report.html").read_text(encoding="utf-8")


def test_asks_for_nothing_outside(report: str) -> None:
    """No script, no address, no file: it reads the same offline and in a mail."""
    reader = Reader()
    reader.feed(report)
    assert reader.misnested == []
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert "http" not in report
    assert "@import" not in report
    references = [value or "" for name, value in reader.attributes if name in ("href", "src", "xlink:href")]
    assert all(value.startswith("#") for value in references)
    assert all(value.startswith("#") for value in re.findall(r"url\(([^)]*)\)", report))


def test_drawings_do_not_share_names(report: str) -> None:
    """Clip paths and markers of one drawing are not taken for another's."""
    drawings = re.findall(r"<svg.*?</svg>", report, flags=re.DOTALL)
    assert len(drawings) == 5
    used = [set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", drawing)) for drawing in drawings]
    defined = [set(re.findall(r' id="([^"]+)"', drawing)) for drawing in drawings]
    assert all(names <= own for names, own in zip(used, defined, strict=True))
    assert len(set.union(*used)) == sum(map(len, used))


def test_text_from_outside_is_escaped(report: str) -> None:
    """Markup in a sentence is shown, not obeyed."""
    assert "<b>" not in report
    assert "&lt;b&gt;Bücher&lt;/b&gt;" in report
    reader = Reader()
    reader.feed(report)
    assert "She sleeps & dreams." in reader.text


def test_tells_all_there_is(report: str) -> None:
    """Table, differences, notes, samples and settings of each cell."""
    reader = Reader()
    reader.feed(report)
    for told in ("Transformer (base)", "not run", "What differs", "tok:13a", "N 2, d_model 128", "1.4 M", "7.389"):
        assert told in reader.text
    assert reader.text.count("Das alte Haus steht auf dem Hügel.") == 2
