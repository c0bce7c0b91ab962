"""The benchmarks' commands at their smallest sizes, without the libraries that they do not need."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import typer
from safetensors.torch import save_file
from torch.nn.utils.rnn import pad_sequence

from benchmarks import decoding, gpu, reading
from benchmarks.contenders import OURS, Contender, processes
from benchmarks.decoding import CTRANSLATE2
from model.batch import Batch
from model.config import OptimizerConfig
from model.training_step import TrainingStep
from pipeline.corpora.wmt14 import official_archives
from pipeline.errors import UserError
from pipeline.evaluation.translation import load_model
from pipeline.text.lines import write_lines
from pipeline.text.segmentation import encode_lines
from pipeline.text.vocabulary import load
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint

ROOT = Path(__file__).parents[2]
LINES = [line for line in SENTENCES if line.strip()]
UNIMPORTABLE = ("ray", "mlflow", "scipy", "matplotlib", "transformers", "ctranslate2")
"""The project's other libraries, which a borrowed machine lacks."""
BLOCKED = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {UNIMPORTABLE}:
            raise ImportError(f"{{name}} is not to be imported")
sys.meta_path.insert(0, Blocker())
"""


def run(folder: Path, command: str, *options: str, blocked: bool = True) -> str:
    if blocked:
        (folder / "sitecustomize.py").write_text(BLOCKED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "COLUMNS": "200"}
    words = [sys.executable, "-m", f"benchmarks.{command}", *options]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint trained for a few seconds to repeat LINES."""
    folder = tmp_path_factory.mktemp("model")
    checkpoint = make_checkpoint(folder / "checkpoint", dropout=0.0)
    sentences = [torch.tensor(ids) for ids in encode_lines(load(checkpoint.folder / "joint.model"), LINES)]
    lines_BS = pad_sequence(sentences, batch_first=True)
    batch = Batch.padded(lines_BS, lines_BS, torch.float32)
    optimizer = OptimizerConfig(warmup_steps=30, learning_rate_scale=0.5, label_smoothing=0.0)
    step = TrainingStep(load_model(checkpoint.folder), optimizer, torch.float32)
    for update in range(1, 151):
        step.accumulate(batch)
        step.apply(update, int(lines_BS.count_nonzero()))
    save_file(step.master.state_dict(), checkpoint.folder / "model.safetensors")
    return checkpoint.folder


@pytest.mark.slow
def test_training(tmp_path: Path) -> None:
    result = json.loads(run(tmp_path, "training", "--size=tiny", "--updates=2", "--rounds=2", "--json"))
    ours, peer = result["contenders"]
    assert (ours["name"], peer["name"]) == (OURS, "torch.nn.Transformer")
    assert ours["target_tokens"] == peer["target_tokens"], "the contenders were given different batches"
    assert result["tokens_s"] == ours["tokens_s"]
    assert result["ratio_torch"] == pytest.approx(ours["tokens_s"] / peer["tokens_s"])
    low, high = result["ratio_torch_spread"]
    assert 0 < low <= high
    assert result["ratio_marian"] is None
    assert 0 < result["padding_fraction"] < 0.2
    low, high = result["roofline_fraction_spread"]
    assert 0 < low <= result["roofline_fraction"] <= high
    assert 0.1 < result["peak_memory_gb"] < 2


@pytest.mark.slow
def test_decoding(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model repeats the source, so BLEU 100 proves the order of the lines, CTranslate2's too."""
    write_lines(text := tmp_path / "text.gz", [*LINES * 4, ""])
    decoding.main(model, src=text, ref=shutil.copy(text, tmp_path / "same.gz"), lang="en", rounds=2, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert (result["sentences"], result["rounds"]) == (4 * len(LINES), 2)
    ours, *others = result["contenders"]
    assert ours["sacrebleu"] == pytest.approx(100)
    low, high = ours["sentences_s_spread"]
    assert 0 < low <= ours["sentences_s"] <= high
    (peer,) = (one for one in others if (one["name"], one["dtype"]) == (CTRANSLATE2, "float32"))
    assert peer["sacrebleu"] == pytest.approx(100)
    assert peer["equal_outputs"] == 4 * len(LINES)
    assert 0 < peer["ratio"] <= ours["sentences_s"] / peer["sentences_s"] * 1.5


@pytest.mark.slow
def test_preparation(tmp_path: Path) -> None:
    options = ("--pair=en-fr", "--pairs=8000", "--vocabulary-size=2000", "--folder=kept", "--json")
    result: dict[str, Any] = json.loads(run(tmp_path, "preparation", *options, blocked=False).split("\n")[-2])
    names = ("read", "read dev", "vocabulary", "encode", "report", "read newstest2014")
    assert [*result["stages"]] == [" ".join([first, "en-fr", *rest]) for first, *rest in map(str.split, names)]
    for rates in result["stages"].values():
        assert rates["pairs_s"] == pytest.approx(8000 / rates["seconds"])
        assert rates["cpu_s"] > 0
    assert 0.05 < max(result["peak_memory_gb"].values()) < 1.5
    assert 0 < result["disk_gb"] <= result["peak_disk_gb"]
    (corpus,) = (tmp_path / "kept" / "store").glob("wmt14-*")
    archives = json.loads((corpus / "corpus.json").read_text())["report"]["archives"]
    assert [*archives] == [archive.path for archive in official_archives("fr").values()]
    assert sum(archive["pairs"] for archive in archives.values()) == pytest.approx(8000, abs=5)
    assert result["ratio_sentencepiece"] == pytest.approx(result["pairs_s"] / result["sentencepiece_pairs_s"])


@pytest.mark.spawns
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("parts", ["whole,base", pytest.param("", marks=pytest.mark.slow)])
def test_gpu_in_tiny_form(tmp_path: Path, parts: str) -> None:
    """Some parts without the libraries that they can do without, or all."""
    shown = run(tmp_path, "gpu", "--device=cpu", "--quick", "--out=out", "--only", parts, blocked=bool(parts))
    assert shown == (tmp_path / "out" / "table.md").read_text()
    for profile in (tmp_path / "out").glob("*.txt"):
        done = json.loads(profile.with_suffix(".json").read_text())
        assert done["tokens_s"] == pytest.approx(done["target_tokens"] / done["update_s"])  # of a single update
        assert min(done["start_s"], done["matmul_flop_s"], done["peak_memory_gb"], done["part_s"]) > 0
        assert "aten::mm" in profile.read_text()
        assert gzip.decompress(profile.with_suffix(".json.gz").read_bytes()).count(b'"ProfilerStep#') == 1
        assert f"| {profile.stem} | {done['tokens_s']:,.0f} |" in shown
        assert f"| {'float32' if profile.stem == 'float32' else done['dtype']} | False | False | False |" in shown
    assert "| base | " in shown
    assert ("skipped: ray not installed |" if parts else " 1 passed, 1 deselected in ") in shown
    assert bool(parts) or ("| 1,600 tokens a side |" in shown and "| peers, torch.nn.Transformer | " in shown)


LASTS = """
import os, pathlib, pytest, signal, subprocess, sys, time
pytestmark = pytest.mark.gpu
def test_cpu_lasts(interrupts=False):
    child = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    pathlib.Path(__file__).with_name(f"{subprocess.Popen([sys.executable, '-c', child]).pid}.child").touch()
    os.kill(os.getppid(), signal.SIGINT if interrupts else 0)
    time.sleep(600)
def test_cpu_interrupts():
    test_cpu_lasts(interrupts=True)
def test_cpu_passes():
    pass
"""


def test_a_part_is_ended_at_its_limit_and_the_next_one_has_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a part has started ends with it, even if it ignores SIGINT, and also when our process is interrupted."""
    (tmp_path / "test_it.py").write_text(LASTS)
    limits = {"lasts": 2, "lacks": 60, "passes": 60, "interrupts": 60}
    parts = {name: gpu.Part("", 0, s, tests=f"{tmp_path}/test_it.py::test_cpu_{name}") for name, s in limits.items()}
    monkeypatch.setattr(gpu, "PARTS", parts)
    monkeypatch.setattr(gpu, "GRACE_S", 0.5)
    with pytest.raises(typer.Exit) as ended:
        gpu.main(tmp_path, "lasts,lacks,passes", "lasts", False, "cpu", True)
    assert ended.value.exit_code == 1
    *_, lasts, lacks, passes = capsys.readouterr().out.splitlines()
    assert lasts.endswith(" | failed: exceeded 6 s |")
    assert "failed: (no match in any of " in lacks
    assert " | 1 passed, " in passes
    with pytest.raises(KeyboardInterrupt):
        gpu.main(tmp_path, "", "interrupts", False, "cpu", True)
    children = [int(file.stem) for file in tmp_path.glob("*.child")]
    assert children
    left = [each for each in psutil.process_iter() if each.pid in children and each.status() != psutil.STATUS_ZOMBIE]
    assert not psutil.wait_procs(left, timeout=30)[1]


def test_the_page_has_the_plan() -> None:
    (plan,) = re.findall(r"(?s)--plan\n```\n\n```\n(.*?)\n```", (ROOT / "docs" / "benchmarks.md").read_text())
    assert gpu.plan([*gpu.PARTS], Path("build/gpu")) == plan
    assert sum(part.expected_s for part in gpu.PARTS.values()) < 8 * 60


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a GPU")
def test_a_machine_without_a_gpu_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--device cuda: none.*; --device cpu --quick tests the parts"):
        gpu.main(tmp_path, "", "base", False, "cuda", False)


@pytest.mark.spawns
def test_the_tests_of_make_gpu_need_few_libraries(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-k", "cuda", "--collect-only"]
    words += [path for part in gpu.PARTS.values() for path in part.tests.split()]
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "test_a_graph_computes_what_its_kernels_do[cuda]" in done.stdout


def test_a_peer_that_fails_drops_out_and_ours_ends_the_benchmark() -> None:
    """A peer's killed process is reported, and later calls return at once. Ours is a one-line error."""
    with processes():
        peer = Contender("peer", "float32", os._exit, 3)
        assert peer.call("anything") is None
        assert "terminated abruptly" in peer.failed
        assert peer.call("anything") is None
        with pytest.raises(UserError, match="aiayn: ZeroDivisionError"):
            Contender(OURS, "float32", divmod, 1, 0).call("anything")


@pytest.mark.skipif(not shutil.which("fincore"), reason="counts pages with util-linux's fincore")
def test_what_a_command_reads(tmp_path: Path) -> None:
    """Bytes count however they are read. Files that are only opened or written do not count."""
    if "tmpfs" in subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path], text=True):
        pytest.skip("nothing is read from a file system in memory")
    for name in ("read", "mapped", "opened"):
        (tmp_path / name).write_bytes(os.urandom(3 << 20))
    script = """
import mmap, os, pathlib, sys
os.chdir(sys.argv[1])
pathlib.Path("new").write_bytes(pathlib.Path("read").read_bytes())
with open("mapped") as mapped, open("opened") as opened:
    opened.seek(0, 2)
    mmap.mmap(mapped.fileno(), 0, prot=mmap.PROT_READ)[:]
"""
    result = reading.measure(tmp_path, [sys.executable, "-c", script, str(tmp_path)])
    assert (result["exit_status"], result["read_mb"]) == (0, pytest.approx(2 * (3 << 20) / 1e6, rel=0.1))
    assert set(result["most_read_mb"]) == {"read", "mapped"}
