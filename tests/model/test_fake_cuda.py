"""What a GPU would execute, without one: no operator across devices, no wait for the host, few launches."""

import json

import pytest

from model.flops import count_parameters
from tests.support.fake_cuda import operators
from tests.support.fake_cuda.build import run
from tests.support.fake_cuda.operators import CONFIG

pytestmark = pytest.mark.spawns


def memory_bytes(micro_batches: int) -> int:
    """Counts the GPU memory traffic for gradients and weights in a bfloat16 update, in bytes read and written.

    Traffic inside products is not counted. A micro-batch concatenates its gradients (4 bytes a parameter) and adds them
    in float32 (10). The loss sums the vocabulary's matrix (2) and adds label smoothing's gradient (8); the look-up
    writes its own (2). An update computes the norm (4), steps Adam, which also writes the divided gradient (32), zeroes
    the sum (4) and copies the weights to bfloat16 (6).
    """
    parameters, vocabulary = count_parameters(CONFIG), CONFIG.vocabulary_size * CONFIG.d_model
    return micro_batches * (14 * parameters + 12 * vocabulary) + 46 * parameters


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """Operators with a kernel, by part of the work and name. A part fails if devices mix or the host waits."""
    counted: dict[str, dict[str, int]] = json.loads(run(tmp_path_factory.mktemp("guard"), operators.__name__))
    return counted


def test_launches_of_a_micro_batch_are_few(counts: dict[str, dict[str, int]]) -> None:
    micro_batch = counts["micro-batch"]
    assert sum(micro_batch.values()) <= 240
    assert micro_batch["embedding_dense_backward"] == 1
    assert micro_batch["_varlen_attn"] == micro_batch["_varlen_attn_backward"] == 3 * CONFIG.n_layers
    assert "bmm" not in micro_batch
    assert "_softmax" not in micro_batch


def test_memory_traffic_is_as_counted_by_hand(counts: dict[str, dict[str, int]]) -> None:
    counted = counts["weight bytes"]
    assert counted["update"] == pytest.approx(memory_bytes(0), rel=0.01)
    assert counted["update"] + counted["micro-batch"] == pytest.approx(memory_bytes(1), rel=0.01)


def test_exact_micro_batch_does_not_wait(counts: dict[str, dict[str, int]]) -> None:
    """With deterministic kernels, nothing writes at indices that CUDA would first check on the host."""
    exact = counts["exact micro-batch"]
    assert not exact.keys() & {"index_put", "index_put_", "_unsafe_index_put", "_local_scalar_dense"}
    assert sum(exact.values()) == sum(counts["micro-batch"].values())


@pytest.mark.parametrize(("part", "most"), [("update", 17), ("validation", 145), ("search position", 70)])
def test_launches_of_the_rest_are_few(counts: dict[str, dict[str, int]], part: str, most: int) -> None:
    assert sum(counts[part].values()) <= most
