"""A checkpoint and its CTranslate2 export have the same log-probabilities and translations."""

import sys
from pathlib import Path

import pytest
import torch

from model.config import PAD_ID
from model.transformer import Transformer
from pipeline.artifacts import Checkpoint
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.export.ctranslate2 import SAME_SEARCH, export
from pipeline.settings import DecodingSettings
from pipeline.text import vocabulary
from tests.support.batches import hidden_of
from tests.support.half_trained import LINES, ids, shifted

ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.mark.parametrize("beam_size", [1, 4])
def test_same_translations(exported: tuple[Transformer, Path], beam_size: int) -> None:
    """Each line's best output is ours, unless it is cut off by our limit.

    Log-probabilities are compared to 2%, because CTranslate2 forbids tokens, which raises the others' probabilities.
    """
    _, folder = exported
    settings = DecodingSettings(beam_size=beam_size, length_penalty=0, dtype="float32", batch_tokens=100)
    ours, processor = Translator(folder.with_name("checkpoint"), settings), vocabulary.load(folder / "joint.model")
    pieces, theirs = processor.encode(LINES, out_type=str), ctranslate2.Translator(str(folder))
    found = theirs.translate_batch(pieces, beam_size=beam_size, return_scores=True, **SAME_SEARCH)
    compared = set()
    for source, expected, result in zip(pieces, ours.translations(LINES), found, strict=True):
        if expected.n_tokens < len(source) + 1 + settings.max_extra_tokens:
            assert processor.decode(result.hypotheses[0]) == expected.text
            assert len(result.hypotheses[0]) + 1 == expected.n_tokens
            assert result.scores[0] == pytest.approx(expected.log_probability, rel=0.02)
            compared.add(expected.text)
    assert len(compared) >= 4


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise OSError('libctranslate2.so: cannot enable executable stack')", "loaded .* executable stack\\); pip"),
        (None, "loaded .*No module named 'ctranslate2'.*; pip install"),
    ],
)
def test_failed_import_named(code: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if code is not None:
        (tmp_path / "ctranslate2.py").write_text(code)
    for name in [name for name in sys.modules if name.partition(".")[0] == "ctranslate2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(path for path in sys.path if "site-packages" not in path)])
    with pytest.raises(UserError, match=message):
        export(Context(tmp_path), Checkpoint(tmp_path))


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
