"""What a GPU would execute, without one: no operator across devices, no wait for the host, few launches."""

import json
import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import torch

from model.flops import count_parameters
from tests.support.fake_cuda import operators
from tests.support.fake_cuda.operators import CONFIG

SOURCE = Path(operators.__file__).with_name("guard.cpp")

pytestmark = pytest.mark.spawns


def run(folder: Path, module: str) -> str:
    """Runs a module with the device guard preloaded, which it compiles into `folder`, and returns its output."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler can build the device guard")
    if torch.version.cuda:
        pytest.skip("this build of torch has CUDA's own device guard")
    home, guard = Path(torch.__file__).parent, folder / "guard.so"
    flags = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{home / 'include'}", f"-L{home / 'lib'}"]
    command = [compiler, *flags, str(SOURCE), "-o", str(guard), "-lc10", "-ltorch_cpu"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"the device guard does not compile: {built.stderr[-500:]}")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(home / "lib"), "LD_PRELOAD": str(guard)}
    command = [sys.executable, "-W", "ignore", "-m", module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def memory_bytes(passes: int) -> int:
    """Counts the GPU memory traffic for gradients and weights in a bfloat16 update, in bytes read and written.

    Traffic inside products is not counted. A pass concatenates its gradients (4 bytes a parameter) and adds them
    in float32 (10). The loss sums the vocabulary's matrix (2) and adds label smoothing's gradient (8); the look-up
    writes its own (2). An update computes the norm (4), steps Adam, which also writes the divided gradient (32), zeroes
    the sum (4) and copies the weights to bfloat16 (6).
    """
    parameters, vocabulary = count_parameters(CONFIG), CONFIG.vocabulary_size * CONFIG.d_model
    return passes * (14 * parameters + 12 * vocabulary) + 46 * parameters


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """Operators with a kernel, by part of the work and name. A part fails if devices mix or the host waits."""
    return json.loads(run(tmp_path_factory.mktemp("guard"), operators.__name__))


def test_launches_of_a_pass_are_few(counts: dict[str, dict[str, int]]) -> None:
    """Of them 10 for each place of dropout, which compiled layers fuse with the rest."""
    one_pass = counts["pass"]
    assert sum(one_pass.values()) <= 341
    assert one_pass["embedding_dense_backward"] == 1
    assert one_pass["packed_attention"] == one_pass["packed_attention_backward"] == 3 * CONFIG.n_layers
    assert "bmm" not in one_pass
    assert "_softmax" not in one_pass


def test_memory_traffic_is_as_counted_by_hand(counts: dict[str, dict[str, int]]) -> None:
    counted = counts["weight bytes"]
    assert counted["update"] == pytest.approx(memory_bytes(0), rel=0.01)
    assert counted["update"] + counted["pass"] == pytest.approx(memory_bytes(1), rel=0.01)


def test_an_exact_pass_does_not_wait(counts: dict[str, dict[str, int]]) -> None:
    """With deterministic kernels, nothing writes at indices that CUDA would first check on the host."""
    exact = counts["exact pass"]
    assert not exact.keys() & {"index_put", "index_put_", "_unsafe_index_put", "_local_scalar_dense"}
    assert sum(exact.values()) == sum(counts["pass"].values())


@pytest.mark.parametrize(
    ("part", "most"), [("reading", 89), ("update", 17), ("validation", 145), ("search position", 70)]
)
def test_launches_of_the_rest_are_few(counts: dict[str, dict[str, int]], part: str, most: int) -> None:
    assert sum(counts[part].values()) <= most


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="Inductor's private interface is torch 2.13's")
def test_what_inductor_makes_of_layers(tmp_path: Path) -> None:
    """Nothing is copied before attention. Registers suffice. No element is stored as an integer."""
    pytest.importorskip("triton", reason="Triton is for Linux only")
    graphs = json.loads(run(tmp_path, "tests.support.fake_cuda.compiled"))
    attention, feed_forward = "packed_attention mm triton", "addmm triton addmm triton"
    assert graphs["encoder forward"]["launches"] == f"mm {attention} {feed_forward}"
    assert graphs["decoder forward"]["launches"] == f"mm mm {attention} mm {attention} {feed_forward}"
    for name, graph in graphs.items():
        assert graph["launches"].count("triton") <= {"encoder backward": 13, "decoder backward": 17}.get(name, 4)
        assert "triton packed_attention" not in graph["launches"]
        stored = [dtype for width, dtype in graph["buffers"] if width != "1" and dtype not in ("bfloat16", "bool")]
        assert stored == ["float32"] * ("backward" in name)  # what the first norm of a layer has normalised
        for registers, spilled in chain(*graph["kernels"].values()):
            assert registers < 255
            assert not spilled
