"""The page holds everything it shows, asks for nothing outside, and nothing in a sentence can act on it."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.attention.heads import HeadFigures, HeadsFigures
from pipeline.attention.translated import Attended
from pipeline.settings import DecodingSettings
from tests.support.html_reader import Reader
from workflows.figures.page import render

HEAD = HeadFigures(
    kind="cross",
    layer=1,
    head=2,
    entropy=1.5,
    distance=2.5,
    previous=0.1,
    next=0.2,
    same=0.3,
    separator=0.4,
    perplexity_without=9.25,
    perplexity_change=1.25,
)


def page(attended: tuple[Attended, ...], **more: Any) -> str:
    return render("en-de <i>base</i>", attended, DecodingSettings(), **more)


def data_of(html: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, flags=re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


def test_weights_come_back_as_they_were(attended: tuple[Attended, ...]) -> None:
    """Unpacked as the script does it, they are the model's to four decimals; pieces, words and text too."""
    for sentence, sent in zip(attended, data_of(page(attended))["sentences"], strict=True):
        assert (sent["sentence"], sent["translation"]) == (sentence.sentence, sentence.translation)
        assert sent["source"]["texts"] == list(sentence.source.texts)
        assert sent["written"]["words"] == [list(word) for word in sentence.written.words]
        for kind, weights in sentence.weights.items():
            packed = sent["weights"][kind]
            values = np.frombuffer(base64.b64decode(packed["data"]), "<u2").reshape(packed["shape"]) / 65535
            np.testing.assert_allclose(values, weights, atol=1e-5)


def test_text_from_outside_is_text(attended: tuple[Attended, ...]) -> None:
    """Markup in a sentence or a name is shown; in the data no sign is left that could end the script."""
    html = page(attended)
    assert "<b>" not in html
    assert "<i>" not in html
    assert "en-de &lt;i&gt;base&lt;/i&gt;" in html
    assert data_of(html)["sentences"][1]["sentence"] == "The man who sees the <b>dog</b> sleeps & dreams."
    closing = attended[0].__class__(**{**vars(attended[0]), "sentence": "</script><script>alert(1)</script>"})
    html = page((closing,))
    assert html.count("</script>") == 2
    assert Reader(html).misnested == []


def test_the_page_asks_for_nothing_outside(attended: tuple[Attended, ...]) -> None:
    """No request, no form, no inline handler."""
    reader = Reader(page(attended))
    assert reader.misnested == []
    names = {name for name, _ in reader.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("style", "action")}
    assert not [value for name, value in reader.attributes if name in ("href", "src")]
    assert {"link", "iframe", "object", "form"}.isdisjoint(reader.tags)


def test_figures_and_tables_are_on_the_page(attended: tuple[Attended, ...], tmp_path: Path) -> None:
    """A drawing with its caption as alternative text; each head with its figures, and what opens it."""
    (tmp_path / "figure3.svg").write_text("<svg/>")
    heads = HeadsFigures(heads=(HEAD,), perplexity=8.0, pairs=3, tokens=1234)
    html = page(attended, figures={"“it” & 'that'": tmp_path / "figure3.svg"}, heads=heads)
    reader = Reader(html)
    assert ("alt", "“it” & 'that'") in reader.attributes
    assert ("src", "data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode()) in reader.attributes
    assert ("data-open", "cross 1 2") in reader.attributes
    row = next(row for row in reader.rows if row and row[0] == "cross 1.2")
    assert row == ["cross 1.2", "1.50", "2.50", "10 %", "30 %", "20 %", "40 %", "9.250", "+1.250"]
    assert "1,234 target tokens" in reader.text
