"""Translation with weights in int8 is the same in any batches."""

import pytest
import torch

from model.int8 import Int8Linear, is_available
from pipeline.evaluation.translation import Translator
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
