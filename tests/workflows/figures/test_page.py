import base64
import json
import re
from typing import Any

import numpy as np

from pipeline.attention.translated import Attended
from pipeline.settings import DecodingSettings
from tests.support.html_reader import Reader
from workflows.figures.page import render


def page(attended: tuple[Attended, ...]) -> str:
    start = {"kind": "encoder", "sentence": 0, "layer": 0, "heads": [0], "word": None}
    return render("en-de <i>base</i>", attended, DecodingSettings(), start, {})


def data_of(html: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, flags=re.DOTALL)
    return json.loads(text)


def test_weights_come_back_as_they_were(attended: tuple[Attended, ...]) -> None:
    for sentence, sent in zip(attended, data_of(page(attended))["sentences"], strict=True):
        assert (sent["sentence"], sent["translation"]) == (sentence.sentence, sentence.translation)
        assert sent["source"]["texts"] == list(sentence.source.texts)
        assert sent["written"]["words"] == [list(word) for word in sentence.written.words]
        for kind, weights in sentence.weights.items():
            packed = sent["weights"][kind]
            values = np.frombuffer(base64.b64decode(packed["data"]), "<u2").reshape(packed["shape"]) / 65535
            np.testing.assert_allclose(values, weights, atol=1e-5)


def test_text_from_outside_is_text(attended: tuple[Attended, ...]) -> None:
    html = page(attended)
    assert "<b>" not in html
    assert "<i>" not in html
    assert "en-de &lt;i&gt;base&lt;/i&gt;" in html
    assert data_of(html)["sentences"][1]["sentence"] == "The man who sees the <b>dog</b> sleeps & dreams."
    html = page((attended[0].__class__(**{**vars(attended[0]), "sentence": "</script><script>alert(1)</script>"}),))
    assert html.count("</script>") == 2
    assert Reader(html).misnested == []


def test_the_page_asks_for_nothing_outside(attended: tuple[Attended, ...]) -> None:
    reader = Reader(page(attended))
    assert reader.misnested == []
    names = {name for name, _ in reader.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("style", "action")}
    assert not [value for name, value in reader.attributes if name in ("href", "src")]
    assert {"link", "iframe", "object", "form"}.isdisjoint(reader.tags)
