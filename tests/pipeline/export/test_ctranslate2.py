"""A checkpoint and its CTranslate2 export have the same log-probabilities and translations."""

import sys
from pathlib import Path

import pytest
import torch

from model.config import PAD_ID
from model.search import penalty
from model.transformer import Transformer
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.export.ctranslate2 import CTranslate2Translator, installed
from pipeline.settings import DecodingSettings
from pipeline.text import vocabulary
from pipeline.text.segmentation import encode_lines
from tests.support.batches import hidden_of
from tests.support.half_trained import LINES, ids, shifted

ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.mark.parametrize(("beam_size", "length_penalty"), [(1, 0.0), (4, 0.0), (4, 0.6)])
def test_same_translations(exported: tuple[Transformer, Path], beam_size: int, length_penalty: float) -> None:
    """Each line's best output is ours, and n-best lists are scored by our penalty, at any batch size.

    Outputs at our length limit are not compared. Log-probabilities are compared to 2%, because CTranslate2 forbids
    tokens, which raises the others' probabilities.
    """
    lines, (_, folder) = [*LINES, ""], exported
    settings = DecodingSettings(beam_size=beam_size, length_penalty=length_penalty, dtype="float32", batch_tokens=100)
    ours = Translator(folder.with_name("checkpoint"), settings)
    limits = [len(tokens) + settings.max_extra_tokens for tokens in encode_lines(ours._vocabulary, lines)]
    theirs, compared = CTranslate2Translator(folder, settings).n_best(lines, beam_size), set()
    for limit, expected, outputs in zip(limits, ours.translations(lines), theirs, strict=True):
        assert len(outputs) == (beam_size if expected.n_tokens else 1)
        assert sorted(outputs, key=lambda output: -output.score) == outputs
        for output in outputs:
            assert output.score == pytest.approx(output.log_probability / penalty(output.n_tokens, length_penalty))
        if expected.n_tokens < limit:
            assert (outputs[0].text, outputs[0].n_tokens) == (expected.text, expected.n_tokens)
            assert outputs[0].log_probability == pytest.approx(expected.log_probability, rel=0.02)
            compared.add(expected.text)
    assert len(compared) >= 4


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "raise OSError('libctranslate2.so: cannot enable executable stack')",
            "loaded .* executable stack\\); .*reinstall",
        ),
        ("import a_missing_library", "loaded .*a_missing_library.*reinstall"),
        ("", "loaded .*ctranslate2.specs.*reinstall"),
        (None, "is not installed; pip install"),
    ],
)
def test_what_cannot_be_imported_is_a_line(
    code: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader's words tell a broken installation from none."""
    if code is not None:
        (tmp_path / "ctranslate2.py").write_text(code)
    for name in [name for name in sys.modules if name.partition(".")[0] == "ctranslate2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(path for path in sys.path if "site-packages" not in path)])
    with pytest.raises(UserError, match=message):
        installed("ctranslate2.specs.transformer_spec")


def test_same_log_probabilities(exported: tuple[Transformer, Path]) -> None:
    model, folder = exported
    processor = vocabulary.load(folder / "joint.model")
    source_BS, target_BT = ids(processor, LINES), ids(processor, LINES[::-1])
    with torch.inference_mode():
        log_p_BTV = model.logits(hidden_of(model, source_BS, shifted(target_BT))).log_softmax(dim=-1)
    log_p_BT = log_p_BTV.gather(2, target_BT[:, :, None])[:, :, 0]
    pieces = [[processor.encode(line, out_type=str) for line in side] for side in (LINES, LINES[::-1])]
    scored = ctranslate2.Translator(str(folder)).score_batch(*pieces)
    for expected_T, target_T, result in zip(log_p_BT, target_BT, scored, strict=True):
        assert result.log_probs == pytest.approx(expected_T[target_T != PAD_ID].tolist(), abs=1e-4)
