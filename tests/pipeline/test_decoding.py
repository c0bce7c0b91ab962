"""Translation in one process and by Ray actors, with a real sentencepiece model and random weights."""

import dataclasses
import json
import os
import resource
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from safetensors.torch import save_file

from model.config import END_ID, TransformerConfig
from model.transformer import Transformer
from pipeline import decoding, vocabulary
from pipeline.artifacts import Checkpoint, Context, Corpus
from pipeline.errors import UserError
from pipeline.lines import read_lines
from pipeline.settings import DecodingSettings, VocabularySettings
from pipeline.translation import LONGEST_TOKENS, Translator, batches

SENTENCES = [
    "Two dogs run over the grass .",
    "",
    "A man in a blue shirt is standing on a ladder cleaning a window .",
    "A dog .",
    "   ",
    "Two men are standing near a large red ladder and the small dog runs over the blue grass .",
    "The window is red .",
]
FAST = DecodingSettings(max_extra_tokens=5)


def write_split(corpus: Corpus, split: str, lines: list[str]) -> None:
    (corpus.folder / split).mkdir()
    for language in ("en", "de"):
        text = "".join(line + "\n" for line in lines)
        corpus.shard_path(split, 0, language).write_text(text, encoding="utf-8", newline="\n")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """A training split and two test sets of seven and forty-two lines, two of seven blank."""
    corpus = Corpus(tmp_path / "corpus")
    corpus.folder.mkdir()
    splits = {"train": [s for s in SENTENCES if s.strip()], "first": SENTENCES, "second": SENTENCES[::-1] * 6}
    for split, lines in splits.items():
        write_split(corpus, split, lines)
    corpus.describe(("en", "de"), {split: [len(lines)] for split, lines in splits.items()}, {})
    return corpus


def make_checkpoint(folder: Path, corpus: Corpus, **more: Any) -> Checkpoint:
    folder.mkdir()
    learned = vocabulary.learn(Context(folder), corpus, VocabularySettings(size=60))
    learned.path.rename(folder / "joint.model")
    torch.manual_seed(1)
    config = TransformerConfig(60, 1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, **more)
    save_file(Transformer(config).state_dict(), folder / "model.safetensors")
    Checkpoint(folder).write_json("model.json", dataclasses.asdict(config))
    return Checkpoint(folder)


@pytest.fixture
def checkpoint(tmp_path: Path, corpus: Corpus) -> Checkpoint:
    return make_checkpoint(tmp_path / "checkpoint", corpus)


def test_translation_keeps_order_whatever_the_batches(checkpoint: Checkpoint) -> None:
    """Lines alone, in small and in large batches give the same lines in the order of the input; blank gives empty."""
    one = Translator(checkpoint.folder, FAST, "cpu")
    many = Translator(checkpoint.folder, FAST.model_copy(update={"batch_tokens": 60}), "cpu")
    together = one.translate(SENTENCES)
    assert together == many.translate(SENTENCES)
    assert together == [one.translate([line])[0] for line in SENTENCES]
    assert [bool(text) for text in together] == [bool(line.strip()) for line in SENTENCES]
    assert len(set(together)) > 3
    assert one.translate([]) == []


def test_batches_hold_each_row_once_within_the_budget() -> None:
    """Every row once, the longest first, no batch above the budget with its padding but a single longer row."""
    lengths = [3, 900, 7, 7, 1, 20, 12, 3, 150, 2]
    planned = list(batches(lengths, 100))
    assert sorted(row for batch in planned for row in batch) == list(range(len(lengths)))
    assert [len(batch) for batch in planned[:2]] == [1, 1]
    for batch in planned:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= 100
    firsts = [lengths[batch[0]] for batch in planned]
    assert firsts == sorted(firsts, reverse=True)


def test_overlong_line_is_translated_in_parts(tmp_path: Path, corpus: Corpus) -> None:
    """A line beyond the learned positions is cut before words; its parts are translated as lines and joined."""
    checkpoint = make_checkpoint(tmp_path / "learned", corpus, positions="learned", max_positions=40)
    translator = Translator(checkpoint.folder, FAST, "cpu")
    line = " ".join(sentence for sentence in SENTENCES * 2 if sentence.strip())
    processor = vocabulary.load(checkpoint.folder / "joint.model")
    parts = translator._cut([*processor.encode(line), END_ID])
    assert len(parts) > 3
    assert max(len(part) for part in parts) <= 40
    texts = [processor.decode(part[:-1]) for part in parts]
    assert " ".join(texts) == line
    assert translator.translate([line, "A dog ."])[0] == " ".join(translator.translate(texts))


def test_overlong_line_takes_bounded_memory(checkpoint: Checkpoint) -> None:
    """Attention over 60 000 tokens at once would take 14 GB a head; in parts the process grows by less than one."""
    settings = DecodingSettings(beam_size=1, max_extra_tokens=1)
    translator = Translator(checkpoint.folder, settings, "cpu")
    with torch.no_grad():  # a model that ends at once, so that the search takes no time
        translator._model.embedding.weight[END_ID] = 9 * torch.ones(16)
        translator._model.decoder[-1].feed_forward_norm.bias.fill_(1.0)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_tokens = translator.translations(["dog " * 20_000])[0].n_tokens
    assert n_tokens >= len(vocabulary.load(checkpoint.folder / "joint.model").encode("dog " * 20_000)) / LONGEST_TOKENS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 1e6


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "joint.model"])
@pytest.mark.parametrize("harm", ["missing", "cut", "foreign"])
def test_bad_checkpoint_is_one_clear_line(
    checkpoint: Checkpoint, corpus: Corpus, tmp_path: Path, name: str, harm: str
) -> None:
    """A file that is missing, cut in half or of another model is a UserError of one line that names the folder."""
    path = checkpoint.folder / name
    if harm == "missing":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif name == "joint.model":
        other = Context(tmp_path / "other")
        other.folder.mkdir()
        shutil.copyfile(vocabulary.learn(other, corpus, VocabularySettings(size=64)).path, path)
    elif name == "model.json":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"d_ff": 64}))
    else:
        save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(UserError) as raised:
        Translator(checkpoint.folder, FAST, "cpu")
    assert str(checkpoint.folder) in str(raised.value)
    assert "\n" not in str(raised.value)


def run(checkpoint: Checkpoint, corpus: Corpus, folder: Path, settings: DecodingSettings, emit: Any = None) -> Path:
    folder.mkdir()
    decoding.decode(Context(folder, emit or (lambda event: None)), checkpoint, corpus, settings)
    return folder


def test_stage_writes_every_test_set_in_order(
    ray_cluster: None, checkpoint: Checkpoint, corpus: Corpus, tmp_path: Path
) -> None:
    """Two actors write what one Translator gives, say so in decoding.json, and are gone afterwards."""
    events: list[dict[str, Any]] = []
    settings = FAST.model_copy(update={"workers": 2})
    folder = run(checkpoint, corpus, tmp_path / "out", settings, events.append)
    translator = Translator(checkpoint.folder, FAST, "cpu")
    described = json.loads((folder / "decoding.json").read_text())["test_sets"]
    for name, lines in (("first", SENTENCES), ("second", SENTENCES[::-1] * 6)):
        expected = translator.translations(lines)
        assert list(read_lines(folder / f"{name}.de")) == [translation.text for translation in expected]
        assert described[name]["sentences"] == len(lines)
        assert described[name]["tokens"] == sum(translation.n_tokens for translation in expected)
        assert described[name]["seconds"] > 0
    assert events[-1] == {"done": 49, "total": 49, "unit": "sentences"}
    assert len(events) > 2
    deadline_s = time.monotonic() + 30  # Ray ends a process some time after its actor was killed
    while workers_alive() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert not workers_alive()


def workers_alive() -> list[int]:
    """Process ids of decoding actors; Ray names their processes after the class."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith(b"ray::DecodingWorker"):
            found.append(int(process.name))
    return found


def test_killed_actor_loses_nothing(
    ray_cluster: None, checkpoint: Checkpoint, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killing the actor after the first chunk changes no line of the result."""
    monkeypatch.setattr(decoding, "CHUNK_SENTENCES", 10)
    settings = FAST.model_copy(update={"workers": 1})
    killed: list[int] = []

    def kill(_event: dict[str, Any]) -> None:
        if not killed:
            killed.extend(workers_alive())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    folder = run(checkpoint, corpus, tmp_path / "out", settings, kill)
    assert killed
    assert list(read_lines(folder / "second.de")) == Translator(checkpoint.folder, FAST).translate(SENTENCES[::-1] * 6)


def test_runs_in_a_task_that_reserves_no_cpu(
    ray_cluster: None, checkpoint: Checkpoint, corpus: Corpus, tmp_path: Path
) -> None:
    """The actors find room beside the task that awaits them, and one more than there are CPUs does no harm."""
    folder = tmp_path / "out"
    folder.mkdir()
    stage = ray.remote(decoding.decode).options(num_cpus=0)
    settings = FAST.model_copy(update={"workers": 3})
    ray.get(stage.remote(Context(folder), checkpoint, corpus, settings), timeout=120)
    assert list(read_lines(folder / "first.de")) == Translator(checkpoint.folder, FAST).translate(SENTENCES)


def test_bad_checkpoint_reaches_the_caller_from_an_actor(
    ray_cluster: None, checkpoint: Checkpoint, corpus: Corpus, tmp_path: Path
) -> None:
    """The stage raises the actor's UserError as it is."""
    (checkpoint.folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors is missing") as raised:
        run(checkpoint, corpus, tmp_path / "out", FAST.model_copy(update={"workers": 1}))
    assert type(raised.value) is UserError
    assert "\n" not in str(raised.value)
