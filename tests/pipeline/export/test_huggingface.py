"""A checkpoint and its export to transformers have the same token ids, logits and translations."""

from pathlib import Path
from typing import Any

import pytest
import torch

from model.config import PAD_ID
from model.transformer import Transformer
from pipeline.context import Context
from pipeline.evaluation.translation import Translator
from pipeline.export.huggingface import export
from pipeline.settings import DecodingSettings
from pipeline.text import vocabulary
from pipeline.text.encoding import decode_ids
from pipeline.text.normalisation import normalised
from pipeline.text.segmentation import encode_lines
from tests.support.batches import hidden_of, random_sentences
from tests.support.half_trained import LINES, shifted
from tests.support.parallel_text import corpus_of, text_pairs
from tests.support.tiny_checkpoint import make_checkpoint

transformers = pytest.importorskip("transformers")


def load(folder: Path) -> tuple[Any, Any]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    loader = transformers.AutoModelForSeq2SeqLM
    model, found = loader.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert not any(found.values())
    assert isinstance(tokenizer, transformers.MarianTokenizer)
    assert isinstance(model, transformers.MarianMTModel)
    return tokenizer, model.eval()


def test_same_logits(exported: tuple[Transformer, Path]) -> None:
    ours, folder = exported
    torch.manual_seed(5)
    lengths = (torch.randint(1, 13, (64,)) + 1).tolist()
    source_BS, target_BT = random_sentences(lengths, ours.config.vocabulary_size).chunk(2)
    inputs_BT = shifted(target_BT)
    with torch.inference_mode():
        expected_BTV = ours.logits(hidden_of(ours, source_BS, inputs_BT))
        output = load(folder)[1](input_ids=source_BS, attention_mask=source_BS != PAD_ID, decoder_input_ids=inputs_BT)
    real_BT = target_BT != PAD_ID
    torch.testing.assert_close(output.logits[real_BT], expected_BTV[real_BT], atol=1e-4, rtol=1e-4)


def test_same_translations(exported: tuple[Transformer, Path]) -> None:
    settings = DecodingSettings(length_penalty=0.0, dtype="float32")
    expected = Translator(exported[1].with_name("checkpoint"), settings).translate(LINES)
    tokenizer, model = load(exported[1])
    assert model.generation_config.num_beams == settings.beam_size
    found = model.generate(**tokenizer(LINES, return_tensors="pt", padding=True), length_penalty=0.0)
    assert tokenizer.batch_decode(found, skip_special_tokens=True) == expected
    assert len({*expected}) >= 4


def test_same_token_ids(parallel_text: Path, tmp_path: Path) -> None:
    """Token ids, and the text decoded from them, agree on a test set, on characters spelled in bytes and on lines that
    look like special tokens."""
    corpus = corpus_of(tmp_path / "corpus", text_pairs(parallel_text, "multi30k/train", 2000))
    checkpoint = make_checkpoint(tmp_path / "checkpoint", corpus, byte_fallback=True, pieces=1200)
    export(Context(tmp_path / "checkpoint"), checkpoint)
    processor = vocabulary.load(checkpoint.vocabulary)
    tokenizer, _ = load(checkpoint.folder)
    pairs = text_pairs(parallel_text, "multi30k/test_2016_flickr", 1000)
    lines = [*(line for pair in pairs for line in pair), "", "  a  b ", "</s> is <unk> and <pad>", "日本 \u2581 <0x41>"]
    lines += ["su\u0308\xadß\u2028\tja\r", "\ufeffo\u200bk"]
    expected = encode_lines(processor, [normalised(line) for line in lines])
    assert tokenizer(lines)["input_ids"] == expected
    assert tokenizer.batch_decode(expected, skip_special_tokens=True) == decode_ids(processor, expected)
