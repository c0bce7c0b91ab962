"""The drawing of the architecture follows the model: other settings, another picture."""

import re
from dataclasses import replace

import pytest
from torch import nn

from model.config import BASE, BIG, TransformerConfig
from model.parameters import count
from tests.support.html_reader import Reader
from workflows.reports.architecture_drawing import architecture, built

SMALL = TransformerConfig(1200, 3, d_model=48, d_ff=96, n_heads=4, d_k=10, d_v=14)


def texts(svg: str) -> list[str]:
    return [text.replace("&amp;", "&") for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def test_the_paper_s_base_model() -> None:
    """Figure 1's blocks in its order, from the bottom: encoder, then decoder; with shapes and parameters."""
    found = texts(architecture(built(BASE)))
    names = [
        text for text in found if text.startswith(("Embedding", "Sinusoids", "M", "Add", "Feed", "Linear", "Soft"))
    ]
    tables, norm = ["Embedding", "Sinusoids"], "Add & Norm"
    encoder = ["Multi-Head Attention", norm, "Feed Forward", norm]
    decoder = ["Masked Multi-Head Attention", norm, "Multi-Head Attention", norm, "Feed Forward", norm]
    assert names[:16] == [*tables, *encoder, *tables, *decoder, "Linear", "Softmax"]
    assert found.count("6×") == 2
    assert "37,000 × 512 · 18,944,000" in found
    assert found.count("h 8, d_k 64, d_v 64 · 1,048,576") == 3
    assert found.count("512 → 2048 → 512 · 2,099,712") == 2
    assert f"{count(BASE):,} parameters in all" in found
    assert {"1 / √64", "8 × 64 = 512", "512 → 512, 512, 512"} <= set(found)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (replace(SMALL, n_layers=5), {"5×"}),
        (replace(SMALL, n_heads=6), {"h 6, d_k 10, d_v 14 · 13,824", "6 × 14 = 84", "6 heads"}),
        (replace(SMALL, d_ff=100), {"48 → 100 → 48 · 9,748"}),
        (replace(SMALL, d_k=7), {"1 / √7"}),
        (replace(SMALL, positions="learned", max_positions=77), {"Learned positions", "77 × 48 · 3,696"}),
        (replace(SMALL, vocabulary_size=900), {"900 × 48 · 43,200", "48 → 900, the embedding"}),
        (BIG, {"h 16, d_k 64, d_v 64 · 4,194,304", "1024 → 4096 → 1024 · 8,393,728"}),
    ],
)
def test_another_setting_is_another_picture(config: TransformerConfig, told: set[str]) -> None:
    """Each setting shows where it belongs, and did not before."""
    found = set(texts(architecture(built(config))))
    assert told <= found
    assert not told <= set(texts(architecture(built(SMALL))))
    assert f"{count(config):,} parameters in all" in found


def test_modules_not_settings_are_drawn() -> None:
    """A layer that was exchanged after building is drawn apart, and a module of another kind by its class."""
    model = built(SMALL)
    model.encoder[1] = built(replace(SMALL, d_ff=64)).encoder[0]
    model.encoder[2].feed_forward = nn.GRU(48, 48)
    found = texts(architecture(model))
    assert found.count("1×") == 3
    assert found.count("3×") == 1
    assert {"48 → 64 → 48 · 6,256", "GRU", " · 14,112"} <= set(found)


def test_the_drawing_is_well_formed_and_described() -> None:
    """It takes the page's colour, needs nothing outside and has no style that a strict policy would refuse."""
    svg = str(architecture(built(SMALL)))
    reader = Reader(svg)
    assert reader.misnested == []
    assert "style=" not in svg
    assert "http" not in svg
    assert 'aria-label="Encoder of 3 and decoder of 3 layers, d_model 48, 4 heads' in svg
