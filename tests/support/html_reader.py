import base64
import csv
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import unquote

from lxml.html import HTMLParser, document_fromstring

from pipeline.context import Context
from pipeline.store.artifact import JsonArtifact


def page_of(folder: Path, tabulate: Callable[..., JsonArtifact[Any]], *arguments: Any) -> str:
    folder = Path(mkdtemp(dir=folder))
    return (tabulate(Context(folder), *arguments).folder / "report.html").read_text(encoding="utf-8")


class Reader:
    """Collects text, tags, attributes and table rows, and elements closed in the wrong order."""

    def __init__(self, html: str) -> None:
        parser = HTMLParser(encoding="utf-8")
        root = document_fromstring(str(html).encode(), parser)
        elements = [*root.iter("*")]
        self.tags = [element.tag for element in elements]
        self.attributes = [pair for element in elements for pair in element.items()]
        self.text = root.text_content()
        self.rows = [[cell.text_content() for cell in row if cell.tag in ("td", "th")] for row in root.iter("tr")]
        self.misnested = [error.message for error in parser.error_log if "NAME_MISMATCH" in error.type_name]


def drawings(html: str) -> list[str]:
    matches = re.findall(r'(<svg.*?</svg>)|src="data:image/svg\+xml;base64,([^"]*)"', html, flags=re.DOTALL)
    return [inline or base64.b64decode(data).decode() for inline, data in matches]


def assert_asks_for_nothing_outside(html: str) -> None:
    """Asserts that there are no scripts, addresses or files: links lead into the page or contain their data."""
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
