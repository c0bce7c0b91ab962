"""One process translates with a real sentencepiece model and random weights."""

import logging
import math
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.config import END_ID
from model.decoder import IncrementalDecoder
from model.search import Hypothesis, beam_search, penalty
from pipeline.artifacts import Checkpoint, Corpus
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translation, Translator, batches
from pipeline.memory import peak_memory_bytes
from pipeline.settings import LONGEST_TOKENS, DecodingSettings
from pipeline.text import vocabulary
from pipeline.text.segmentation import encode_lines
from tests.support.parallel_text import corpus_of
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint
from tests.support.unspaced_text import ENGLISH, TEXTS

FAST = DecodingSettings(max_extra_tokens=5)


def test_translation_keeps_order_whatever_the_batches(checkpoint: Checkpoint) -> None:
    translator = Translator(checkpoint.folder, FAST, "cpu")
    in_small_batches = Translator(checkpoint.folder, FAST.model_copy(update={"batch_tokens": 60}), "cpu")
    together = translator.translate(SENTENCES)
    assert together == in_small_batches.translate(SENTENCES)
    assert together == [translator.translate([line])[0] for line in SENTENCES]
    assert not any(text for text, line in zip(together, SENTENCES, strict=True) if not line.strip())
    assert len(set(together)) > 3
    assert translator.translate([]) == []


@pytest.mark.parametrize("end", ["\r", "\t", "\u2028", "\x85\xad", "\n", " \x0c\ufeff"])
def test_lines_are_normalised_as_training_text_was(checkpoint: Checkpoint, end: str) -> None:
    """Characters that cleaning drops from training text never reach the model: Windows line ends, tabs, separators."""
    translator = Translator(checkpoint.folder, FAST, "cpu")
    line = SENTENCES[0]
    assert translator.n_best([line.replace(" ", f"{end} ", 1) + end, end], 2) == translator.n_best([line, ""], 2)


def test_n_best_are_the_searchs_own(checkpoint: Checkpoint) -> None:
    translator = Translator(checkpoint.folder, FAST)
    by_line = translator.n_best(SENTENCES, 3)
    processor = vocabulary.load(checkpoint.folder / "joint.model")
    for line, outputs in zip(SENTENCES, by_line, strict=True):
        if not line.strip():
            assert outputs == [Translation("", 0, 0.0, 0.0)]
            continue
        source_1S = torch.tensor([[*processor.encode(line), END_ID]])
        (alone,) = beam_search(translator._decoder, source_1S, max_extra_tokens=5, n_best=3)
        assert len(alone) == 3
        assert [output.text for output in outputs] == [processor.decode(hypothesis.tokens) for hypothesis in alone]
        assert [output.n_tokens for output in outputs] == [len(hypothesis.tokens) + 1 for hypothesis in alone]
        assert [output.score for output in outputs] == pytest.approx([hypothesis.score for hypothesis in alone])
        for output in outputs:
            assert output.score == pytest.approx(output.log_probability / penalty(output.n_tokens, 0.6))
        assert outputs[0].score > outputs[1].score > outputs[2].score
    assert [outputs[0].text for outputs in by_line] == translator.translate(SENTENCES)
    with pytest.raises(ValueError, match="at least 1"):
        translator.n_best(SENTENCES, 0)


def test_batches_hold_each_row_once_within_the_budget() -> None:
    lengths = [3, 900, 7, 7, 1, 20, 12, 3, 150, 2]
    planned = list(batches(lengths, DecodingSettings(beam_size=1, max_extra_tokens=5), 100))
    assert sorted(row for batch in planned for row in batch) == list(range(len(lengths)))
    assert [len(batch) for batch in planned[:2]] == [1, 1]
    for batch in planned:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= 100
    firsts = [lengths[batch[0]] for batch in planned]
    assert firsts == sorted(firsts, reverse=True)
    assert list(batches([], FAST, 100)) == []


def test_n_best_of_an_overlong_line_is_joined(tmp_path: Path, corpus: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    """The second best of a line in parts joins the parts' second best and adds their log P. A warning reports it."""
    checkpoint = make_checkpoint(tmp_path / "learned", corpus, positions="learned", max_positions=40)
    translator = Translator(checkpoint.folder, FAST, "cpu")
    line = " ".join(sentence for sentence in SENTENCES if sentence.strip())
    processor = vocabulary.load(checkpoint.folder / "joint.model")
    texts = [processor.decode(part[:-1]) for part in translator._cut([*processor.encode(line), END_ID])]
    with caplog.at_level(logging.WARNING):
        (whole,) = translator.n_best([line], 2)
    assert f"translated in {len(texts)} parts: Two dogs run over" in caplog.text
    by_part = translator.n_best(texts, 2)
    assert len(whole) == 2
    for rank, output in enumerate(whole):
        assert output.text == " ".join(outputs[rank].text for outputs in by_part)
        assert output.n_tokens == sum(outputs[rank].n_tokens for outputs in by_part)
        assert output.log_probability == pytest.approx(sum(outputs[rank].log_probability for outputs in by_part))
    assert whole[0].score > whole[1].score


@pytest.mark.parametrize("language", ["zh", "ja", "th"])
def test_parts_are_joined_as_their_language_is_written(tmp_path: Path, language: str) -> None:
    text = corpus_of(tmp_path / "corpus", zip(ENGLISH, TEXTS[language], strict=True), ("en", language))
    translator = Translator(make_checkpoint(tmp_path / "learned", text, pieces=400).folder, FAST, "cpu")
    for lines, separator in ((ENGLISH[:2], " "), (TEXTS[language][:2], "")):
        outputs = [Hypothesis(tokens[:-1], 0.0, 0.0) for tokens in encode_lines(translator._vocabulary, lines)]
        assert translator._join(outputs).text == separator.join(lines)


def test_overlong_line_takes_bounded_memory(checkpoint: Checkpoint) -> None:
    """Attention over 60,000 tokens at once would take 14 GB per head. In parts, the process grows by less than 1 GB."""
    translator = Translator(checkpoint.folder, DecodingSettings(beam_size=1, max_extra_tokens=1), "cpu")
    with torch.no_grad():  # the model ends at once, so the search takes no time
        model = translator._decoder.model
        model.embedding.weight[END_ID] = 9 * torch.ones(16)
        model.decoder[-1].feed_forward_norm.bias.fill_(1.0)
        translator._decoder = IncrementalDecoder(model)
    Path("/proc/self/clear_refs").write_text("5")  # man 5 proc: resets the peak
    before_bytes = peak_memory_bytes()
    n_tokens = translator.translations(["dog " * 20_000])[0].n_tokens
    assert n_tokens >= len(vocabulary.load(checkpoint.folder / "joint.model").encode("dog " * 20_000)) / LONGEST_TOKENS
    assert peak_memory_bytes() - before_bytes < 1e9


def test_a_search_without_room_is_one_line(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{Translator.__module__}.beam_search", lambda *_, **__: torch.empty(1 << 60))
    with pytest.raises(UserError, match=r"memory ran out in a search .*DefaultCPUAllocator.*, or lower batch_tokens"):
        Translator(checkpoint.folder, FAST, "cpu").translate(["A dog ."])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", None, "cannot be read"),
        ("model.safetensors", math.nan, r"decoder\.0\.feed_forward\.w_1\.bias has a weight .* NaN"),
        ("model.safetensors", -math.inf, r"decoder\.0\.feed_forward\.w_1\.bias has a weight .* NaN"),
        ("model.json", None, "not valid JSON"),
        ("joint.model", None, "not a sentencepiece model"),
    ],
)
def test_bad_checkpoint_is_one_line(checkpoint: Checkpoint, name: str, content: float | None, message: str) -> None:
    path = checkpoint.folder / name
    if content is None:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        weights = load_file(path)
        weights["decoder.0.feed_forward.w_1.bias"][3] = content
        save_file(weights, path)
    with pytest.raises(UserError, match=rf"{re.escape(str(path))}.*{message}") as raised:
        Translator(checkpoint.folder, FAST, "cpu")
    assert "\n" not in str(raised.value)
