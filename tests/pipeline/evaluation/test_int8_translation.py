"""Translation with weights in int8: real checkpoints, what they take of the memory, and who is refused."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from model.config import TransformerConfig
from model.int8 import Int8Linear, is_available
from model.transformer import Transformer
from pipeline.errors import UserError
from pipeline.evaluation import translation
from pipeline.evaluation.translation import Translator, load_model
from pipeline.settings import DecodingSettings
from pipeline.store.artifacts import Checkpoint
from tests.support.tiny_checkpoint import SENTENCES

ROOT = Path(__file__).parents[3]
INT8 = DecodingSettings(max_extra_tokens=5, dtype="int8")
GROWTH = """
import ctypes
import sys
from pathlib import Path
from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings

def resident_kb():
    ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what was freed
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])

folder = Path(sys.argv[1])
kept = [Translator(folder, DecodingSettings(dtype="int8"))]
for dtype in ("int8", "float32"):
    before_kb = resident_kb()
    kept.append(Translator(folder, DecodingSettings(dtype=dtype)))
    print(resident_kb() - before_kb)
"""
needs_int8 = pytest.mark.skipif(not is_available(), reason="the processor does not multiply int8 natively")


@needs_int8
def test_translations_do_not_depend_on_batches(checkpoint: Checkpoint) -> None:
    """Lines alone and in batches of any size give the same translations, by a model that is in int8."""
    one = Translator(checkpoint.folder, INT8)
    many = Translator(checkpoint.folder, INT8.model_copy(update={"batch_tokens": 60}))
    together = one.translate(SENTENCES)
    assert together == many.translate(SENTENCES) == [one.translate([line])[0] for line in SENTENCES]
    assert len(set(together)) > 3
    assert one.dtype == torch.int8
    assert isinstance(one._decoder.model.projection, Int8Linear)


@needs_int8
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_int8_takes_less_than_half_of_the_memory(checkpoint: Checkpoint) -> None:
    """A translator of 15 million weights takes at most 2 bytes of each in int8, and less than half of float32's."""
    config = TransformerConfig(load_model(checkpoint.folder).config.vocabulary_size, 2, dropout=0.0)
    model = Transformer(config)
    save_file(model.state_dict(), checkpoint.folder / "model.safetensors")
    checkpoint.write_json("model.json", dataclasses.asdict(config))
    command = [sys.executable, "-c", GROWTH, str(checkpoint.folder)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    in_int8_kb, in_float32_kb = map(int, printed.split())
    assert in_int8_kb * 1024 < 2 * sum(parameter.numel() for parameter in model.parameters())
    assert in_int8_kb < in_float32_kb / 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_weights_are_the_files_pages(checkpoint: Checkpoint) -> None:
    """A loaded model maps its file; changing a weight changes neither the file nor a model loaded beside it."""
    path = checkpoint.folder / "model.safetensors"
    before = path.read_bytes()
    model, beside = load_model(checkpoint.folder), load_model(checkpoint.folder)
    assert str(path) in Path("/proc/self/maps").read_text()
    with torch.no_grad():
        model.embedding.weight += 1
    assert path.read_bytes() == before
    torch.testing.assert_close(model.embedding.weight - 1, beside.embedding.weight, atol=1e-6, rtol=0)


def test_a_machine_without_int8_is_told(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, and a processor that does not multiply int8, get one line that says what to set instead."""
    with pytest.raises(UserError, match=r"dtype is int8, in which only CPUs decode; .* auto[^\n]*$"):
        translation.in_dtype(load_model(checkpoint.folder), "int8", "cuda:0")
    monkeypatch.setattr(translation, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"dtype is int8, which this processor \(.+\) lacks; .* auto$"):
        Translator(checkpoint.folder, INT8)
