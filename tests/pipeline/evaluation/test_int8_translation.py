"""Translation with weights in int8: real checkpoints, what they take of the memory, and who is refused."""

import pytest
import torch

from model.int8 import Int8Linear, is_available
from pipeline.errors import UserError
from pipeline.evaluation import translation
from pipeline.evaluation.translation import Translator, load_model
from pipeline.settings import DecodingSettings
from pipeline.store.artifacts import Checkpoint
from tests.support.tiny_checkpoint import SENTENCES

INT8 = DecodingSettings(max_extra_tokens=5, dtype="int8")
needs_int8 = pytest.mark.skipif(not is_available(), reason="the processor does not multiply int8 natively")


@needs_int8
def test_translations_do_not_depend_on_batches(checkpoint: Checkpoint) -> None:
    """Lines alone and in batches of any size give the same translations, by a model that is in int8."""
    translator = Translator(checkpoint.folder, INT8)
    in_small_batches = Translator(checkpoint.folder, INT8.model_copy(update={"batch_tokens": 60}))
    together = translator.translate(SENTENCES)
    assert together == in_small_batches.translate(SENTENCES) == [translator.translate([line])[0] for line in SENTENCES]
    assert len(set(together)) > 3
    assert translator.dtype == torch.int8
    assert isinstance(translator._decoder.model.projection, Int8Linear)


def test_a_machine_without_int8_is_reported(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, and a processor that does not multiply int8, get one line that says what to set instead."""
    with pytest.raises(UserError, match=r"dtype is int8, in which only CPUs decode; .* auto[^\n]*$"):
        translation.in_dtype(load_model(checkpoint.folder), "int8", "cuda:0")
    monkeypatch.setattr(translation, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"dtype is int8, which this processor \(.+\) lacks; .* auto$"):
        Translator(checkpoint.folder, INT8)
