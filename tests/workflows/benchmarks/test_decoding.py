"""`aiayn bench decode`: a real run of the benchmark, contenders that compute the same, Ctrl-C and mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.utils.rnn import pad_sequence

from model.config import OptimizerConfig
from model.int8 import is_available
from model.training_step import TrainingStep
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator, load_model
from pipeline.hardware import dtype_of
from pipeline.settings import DecodingSettings
from pipeline.text.lines import write_lines
from pipeline.text.segmentation import encode_lines
from pipeline.text.vocabulary import load
from tests.support.process_tree import interrupted, wait_for_end
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint, make_corpus
from workflows.benchmarks import decoding
from workflows.benchmarks.decoding import BenchmarkText, DecodingOptions, measure, read_text
from workflows.benchmarks.decoding_contenders import (
    CTranslate2,
    DecodingContender,
    DecodingWorkload,
    MarianGenerate,
    OurTranslator,
    Output,
    WorkerLayout,
)
from workflows.benchmarks.decoding_rates import (
    CTRANSLATE2,
    MARIAN,
    OURS,
    DecodingRates,
    DecodingRound,
    figures,
    print_table,
)

ROOT = Path(__file__).parents[3]
LINES = [line for line in SENTENCES if line.strip()]
TEXT = LINES * 4
SETTINGS = DecodingSettings()
UNPENALIZED = DecodingSettings(length_penalty=0)
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ray", "mlflow", "transformers", "ctranslate2"):
            raise ImportError(f"{name} is not to be imported")
sys.meta_path.insert(0, Blocker())
"""
COMMAND = [sys.executable, "-m", "workflows.cli", "bench", "decode"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint trained for a few seconds to repeat LINES."""
    folder = tmp_path_factory.mktemp("model")
    checkpoint = make_checkpoint(folder / "checkpoint", make_corpus(folder / "corpus"), dropout=0.0)
    sentences = [torch.tensor(ids) for ids in encode_lines(load(checkpoint.folder / "joint.model"), LINES)]
    lines_BS = pad_sequence(sentences, batch_first=True)
    optimizer = OptimizerConfig(warmup_steps=30, learning_rate_scale=0.5, label_smoothing=0.0)
    step = TrainingStep(load_model(checkpoint.folder), optimizer, torch.float32)
    for update in range(1, 151):
        step.apply(update, int(step.accumulate(lines_BS, lines_BS, seed=0).n_tokens))
    save_file(step.master.state_dict(), checkpoint.folder / "model.safetensors")
    return checkpoint.folder


def workload(model: Path, tmp_path: Path) -> DecodingWorkload:
    """A workload at length penalty 0, where all contenders search for the same output."""
    return DecodingWorkload(model, tmp_path / "exported", UNPENALIZED, "cpu")


def test_ours_alone_without_other_libraries(model: Path, tmp_path: Path) -> None:
    """Without Ray, MLflow and peers the command prints one JSON object with consistent figures and null ratios.

    The reference is the source, which the model repeats, so BLEU 100 proves that lines dealt to two workers come back
    in order.
    """
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    write_lines(tmp_path / "text.gz", [*TEXT, ""])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    options = ["--src=text.gz", "--ref=text.gz", "--lang=en", "--threads=2", "--rounds=2", "--device=cpu", "--json"]
    command = [*COMMAND, str(model), *options]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert (result["sentences"], result["threads"]) == (len(TEXT), 2)
    assert result["dtype"] == str(dtype_of("auto", "cpu")).removeprefix("torch.")
    assert result["sacrebleu_ours"] == pytest.approx(100)
    ours, *in_int8 = result["contenders"]
    assert [(entry["name"], entry["dtype"]) for entry in in_int8] == [(OURS, "int8")] * is_available()
    assert all(entry["sacrebleu"] > 99.8 and entry["sentences_s"] > 0 for entry in in_int8)
    assert (ours["workers"], ours["threads"]) in ((1, 2), (2, 1))
    assert 0.2 < ours["peak_memory_gb"] / ours["workers"] < 1
    low, high = result["sentences_s_spread"]
    assert 0 < low <= result["sentences_s"] == ours["sentences_s"] <= high
    tokens = sum(map(len, encode_lines(load(model / "joint.model"), TEXT)))
    assert result["tokens_s"] / result["sentences_s"] == pytest.approx(tokens / len(TEXT), rel=0.01)
    names = "ratio_ctranslate2", "ratio_ctranslate2_int8", "ratio_transformers", "sacrebleu_ctranslate2"
    assert [result[name] for name in (*names, "ratio_int8_ctranslate2_int8")] == [None] * 5


@pytest.mark.parametrize(
    ("package", "make"), [("", OurTranslator), ("ctranslate2", CTranslate2), ("transformers", MarianGenerate)]
)
def test_contenders_translate_the_same(
    model: Path, tmp_path: Path, package: str, make: type[DecodingContender]
) -> None:
    """Each gives, in order and for any batch size, the translations and token counts of `evaluation.translation`."""
    if package:
        pytest.importorskip(package)
    contender = make(workload(model, tmp_path), WorkerLayout(1, 1), "float32")
    outputs = contender.translate(TEXT, 3)
    assert outputs == contender.translate(TEXT, 64)
    assert outputs == [Output(done.text, done.n_tokens) for done in Translator(model, UNPENALIZED).translations(TEXT)]
    assert [output.text for output in outputs] == TEXT


def test_log_probabilities_are_ours(model: Path, tmp_path: Path) -> None:
    """CTranslate2 assigns our outputs at length penalty 0 the log-probabilities that our search found."""
    pytest.importorskip("ctranslate2")
    given = workload(model, tmp_path)
    ours, peer = OurTranslator(given, WorkerLayout(1, 1), "float32"), CTranslate2(given, WorkerLayout(1, 1), "float32")
    hypotheses = ours.hypotheses(LINES, None)
    outputs = [hypothesis.tokens for hypothesis in hypotheses]
    assert peer.unpenalized(LINES, 2) == outputs
    expected = [hypothesis.log_probability for hypothesis in hypotheses]
    assert peer.log_probabilities(LINES, outputs) == pytest.approx(expected, abs=1e-4)


def test_all_contenders_at_once(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A benchmark with every peer gives each its figures, finds equal outputs, reports refusals and prints a table."""
    pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    result = measure(model, BenchmarkText(TEXT, TEXT, "en"), DecodingOptions(SETTINGS, "cpu", threads=1, rounds=1))
    found = {(entry["name"], entry["dtype"]): entry for entry in result["contenders"]}
    int8 = found[CTRANSLATE2, "int8"]
    assert result["ratio_ctranslate2_int8"] == pytest.approx(result["sentences_s"] / int8["sentences_s"])
    peers = [found[name, "float32"] for name in (CTRANSLATE2, MARIAN)]
    assert {entry["batch_size"] for entry in peers} <= {16, 32, 64}
    assert result["ratio_ctranslate2"] <= result["sentences_s"] / peers[0]["sentences_s"] * (1 + 1e-9)
    assert result["ratio_transformers"] > 0
    assert result["sacrebleu_ours"] == pytest.approx(100)
    assert 50 < result["sacrebleu_ctranslate2"] <= 100.01, "its own length penalty may end outputs early"
    assert (result["agreement_ctranslate2"], result["agreement_transformers"]) == (1, 1)
    assert 0 <= result["log_probability_difference"] < 1e-4
    assert 0.02 < peers[0]["peak_memory_gb"] < result["peak_memory_gb"] < 1, "CTranslate2's process imports no torch"
    refused = found[CTRANSLATE2, "bfloat16"]["failed"]
    assert refused is None or refused.startswith("refused: ")
    json.dumps(result)
    print_table(result)
    shown = capsys.readouterr().out
    assert "100.0% of CTranslate2's and 100.0% of MarianMT's float32 outputs equal ours" in shown
    assert refused is None or "CTranslate2 bfloat16 has no figures: refused" in shown


def _rates(name: str, dtype: str, seconds: list[float], failed: str | None = None) -> DecodingRates:
    rounds = [DecodingRound([Output(name, 6), Output(dtype, 4)], second) for second in seconds]
    return DecodingRates(name, dtype, WorkerLayout(2, 1), 32, rounds, 0.5, failed)


def test_figures() -> None:
    """Ratios compare medians, spreads compare rounds; a peer's best floating-point type counts, int8 separately."""
    contenders = [
        _rates(OURS, "float32", [1, 2, 4]),
        _rates(OURS, "int8", [0.5, 1, 1]),
        _rates(CTRANSLATE2, "float32", [2, 2, 2]),
        _rates(CTRANSLATE2, "bfloat16", [1, 1, 2]),
        _rates(CTRANSLATE2, "int8", [0.5, 0.5, 0.5]),
        _rates(MARIAN, "float32", [], "out of memory"),
    ]
    result = figures(contenders, lambda texts: {"sacrebleu": float(texts == [CTRANSLATE2, "bfloat16"])})
    assert (result["sentences_s"], result["tokens_s"], result["sentences_s_spread"]) == (1, 5, [0.5, 2])
    assert (result["ratio_ctranslate2"], result["ratio_ctranslate2_spread"]) == (0.5, [0.5, 1])
    assert result["ratio_ctranslate2_int8"] == 0.25
    assert (result["ratio_int8_ctranslate2_int8"], result["ratio_int8_ctranslate2_int8_spread"]) == (0.5, [0.5, 1])
    assert result["ratio_transformers"] is None
    assert (result["sacrebleu_ours"], result["sacrebleu_ctranslate2"]) == (0, 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ctrl_c_ends_all_processes(model: Path, tmp_path: Path) -> None:
    """Ctrl-C, which reaches all processes of a terminal, ends them at once: status 130, one line, nothing left."""
    write_lines(tmp_path / "text", TEXT * 1000)
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")}
    command = [*COMMAND, str(model), f"--src={tmp_path / 'text'}", "--threads=1", "--rounds=1000"]
    status, errors, pids = interrupted(command, environment)
    assert (status, errors) == (130, "stopped\n")
    assert wait_for_end(pids, timeout_s=10)
    assert not list((tmp_path / "tmp").iterdir())


def test_mistakes_are_one_line(model: Path, tmp_path: Path) -> None:
    """Each error names what is wrong: the model, a file, its lines, an option or a sentence."""
    text, short, blank, endless = (tmp_path / name for name in ("text", "short", "blank", "endless"))
    for path, lines in ((text, TEXT), (short, LINES), (blank, ["", " "]), (endless, ["A dog . " * 400])):
        write_lines(path, lines)
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"model": tmp_path}, "holds no model.safetensors"),
        ({"src": tmp_path / "none"}, "cannot read .*none"),
        ({"ref": short, "lang": "en"}, "text has 20 lines and .*short has 5"),
        ({"ref": text}, "--lang"),
        ({"src": blank}, "holds no sentence"),
        ({"src": endless}, "974|973"),
        ({"device": "tpu"}, "choose one of"),
    ]
    for options, message in mistakes:
        with pytest.raises(UserError, match=message) as raised:
            decoding.decode(**{"model": model, "src": text} | options)
        assert "\n" not in str(raised.value)


def test_read_text_keeps_pairs_together(tmp_path: Path) -> None:
    """A blank source is dropped with its reference; of the rest, the requested number is kept."""
    write_lines(tmp_path / "a", ["one", " ", "two", "three"])
    write_lines(tmp_path / "b", ["eins", "leer", "", "drei"])
    assert read_text(tmp_path / "a", tmp_path / "b", "de", 2) == BenchmarkText(["one", "two"], ["eins", ""], "de")
    assert read_text(tmp_path / "a", None, None, None) == BenchmarkText(["one", "two", "three"], [])
