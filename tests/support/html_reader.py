"""Writes and reads HTML reports in tests."""

import base64
import csv
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import unquote

from pipeline.store.artifact import Context, JsonArtifact


def page_of(folder: Path, tabulate: Callable[..., JsonArtifact[Any]], *arguments: Any) -> str:
    """The page that a table's last stage writes below `folder`."""
    folder = Path(mkdtemp(dir=folder))
    return (tabulate(Context(folder), *arguments).folder / "report.html").read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Collects text, tags, table rows, and elements closed in the wrong order."""

    VOID = frozenset({"meta", "br", "hr", "link", "img", "input", "use", "path"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self.misnested: list[str] = []
        self._open: list[str] = []
        self.feed(str(html))  # a Markup would escape added text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID and self._open.pop() != tag:
            self.misnested.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


def drawings(html: str) -> list[str]:
    """Returns the SVG elements, including those in images."""
    matches = re.findall(r'(<svg.*?</svg>)|src="data:image/svg\+xml;base64,([^"]*)"', html, flags=re.DOTALL)
    return [inline or base64.b64decode(data).decode() for inline, data in matches]


def assert_asks_for_nothing_outside(html: str) -> None:
    """Asserts that there are no scripts, addresses or files, so the report reads the same offline and in an email.

    Links lead to parts of the page or contain their data, like images.
    """
    reader = Reader(html)
    assert reader.misnested == []
    assert not {"script", "link", "iframe", "object"} & set(reader.tags)
    assert "://" not in html
    assert "@import" not in html
    references = [value or "" for name, value in reader.attributes if name in ("href", "src", "xlink:href")]
    assert all(value.startswith(("#", "data:text/csv;", "data:image/svg+xml;")) for value in references)
    targets = {value for name, value in reader.attributes if name == "id"}
    assert {value[1:] for value in references if value.startswith("#")} <= targets
    assert all(value.startswith("#") for value in re.findall(r"url\(([^)]*)\)", html))


def csv_files(html: str) -> dict[str, list[list[str]]]:
    """Returns the figures' data, from their links, as rows by file name."""
    links = re.findall(r'href="data:text/csv;charset=utf-8,([^"]*)" download="([^"]+)"', html)
    return {name: [*csv.reader(unquote(data).splitlines())] for data, name in links}
