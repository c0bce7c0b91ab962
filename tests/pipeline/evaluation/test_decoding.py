"""Ray actors translate with a real sentencepiece model and random weights."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import ray

from model.config import BASE, BIG
from pipeline.artifacts import Checkpoint, EvaluationSet
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.evaluation import decoding
from pipeline.evaluation.translation import Translator, batch_tokens_within
from pipeline.settings import LONGEST_TOKENS, DecodingSettings
from pipeline.text.lines import read_lines
from tests.support.contexts import new_context
from tests.support.ray_workers import workers_alive
from tests.support.tiny_checkpoint import SENTENCES, make_set
from tests.support.waiting import until

FAST = DecodingSettings(max_extra_tokens=5)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "FULL_ROWS", {"cpu": 20})


def run(model: Checkpoint, text: EvaluationSet, folder: Path, settings: DecodingSettings, emit: Any = print) -> Path:
    decoding.decode(new_context(folder, emit), model, text, settings)
    return folder


def test_lines_stay_in_order(ray_cluster: None, checkpoint: Checkpoint, tmp_path: Path, small_chunks: None) -> None:
    events: list[dict[str, Any]] = []
    settings = FAST.model_copy(update={"workers": 2})
    folder = run(checkpoint, make_set(tmp_path / "second", "second"), tmp_path / "out", settings, events.append)
    translator = Translator(checkpoint.folder, FAST, "cpu")
    written = json.loads((folder / "decoding.json").read_text())
    assert written["dtype"] == str(translator.dtype).removeprefix("torch.")
    expected = translator.translations(SENTENCES[::-1] * 6)
    assert list(read_lines(folder / "second.de")) == [translation.text for translation in expected]
    assert written["sentences"] == 42
    assert written["tokens"] == sum(translation.n_tokens for translation in expected)
    assert written["seconds"] > 0
    assert events[-1] == {"done": 42, "total": 42, "unit": "sentences"}
    assert len(events) > 2
    until(lambda: not workers_alive("DecodingWorker"), 30)  # Ray ends a process some time after its actor was killed


TWO_KINDS = """
import sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from pipeline.evaluation import decoding
from pipeline.settings import DecodingSettings
from pipeline.context import Context
from pipeline.artifacts import Checkpoint, EvaluationSet
from workflows.engine.joining import loopback_only
checkpoint, text, out = map(Path, sys.argv[1:])
decoding.FULL_ROWS = {"cpu": 20}
with loopback_only():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1, env_vars={"ONEDNN_MAX_CPU_ISA": "AVX2"})
    ray.init(cluster.address, log_to_driver=False)
settings = DecodingSettings(max_extra_tokens=5, workers=2)
decoding.decode(Context(out), Checkpoint(checkpoint), EvaluationSet(text), settings)
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
@pytest.mark.ray
def test_nodes_of_two_kinds_decode_in_one_dtype(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """One node may multiply bfloat16 and the other may not: both compute in float32."""
    (tmp_path / "out").mkdir()
    folders = [checkpoint.folder, make_set(tmp_path / "second", "second").folder, tmp_path / "out"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    subprocess.run([sys.executable, "-c", TWO_KINDS, *map(str, folders)], env=environment, check=True)
    assert json.loads((tmp_path / "out" / "decoding.json").read_text())["dtype"] == "float32"


def test_another_dtype_ends_decoding_at_once(first_set: EvaluationSet, checkpoint: Checkpoint, tmp_path: Path) -> None:
    done = []

    class TwoKinds:
        def translated(self, model: object, sources: Sequence[str], settings: object) -> Iterator[Any]:
            for i, line in enumerate(sources):
                done.append(line)
                yield decoding.Chunk(i, [line]), decoding.Translated(["x"], 1, 0.1, ("bfloat16", "float32")[i % 2])

    kinds: Any = nullcontext(TwoKinds())
    with pytest.raises(UserError, match=r"set decoding\.dtype"), kinds as translators:
        decoding.decode(Context(tmp_path), checkpoint, first_set, DecodingSettings(), translators=translators)
    assert len(done) == 2


@pytest.mark.usefixtures("ray_cluster")
def test_workers_wait_for_the_cpus_of_other_work(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As runs say it, and without a warning as long as they wait, which would stand in the report."""
    monkeypatch.setattr(decoding, "PATIENCE_S", 0.5)
    told, events = tmp_path / "told", list[dict[str, Any]]()
    work = ray.remote(num_cpus=2)(lambda: until(told.exists, 60) and time.time()).remote()
    until(lambda: not ray.available_resources().get("CPU"), 30)
    emit = lambda event: (events.append(event), told.touch())  # noqa: E731
    run(checkpoint, make_set(tmp_path / "second", "second"), tmp_path / "out", FAST, emit)
    freed_s = ray.get(work)
    assert events[0] in [{"waiting": f"room for {n} of 1 CPU"} for n in ("1 decoding worker", "2 decoding workers")]
    assert not [each for each in caplog.records if "no result" in each.message and each.created < freed_s]


def test_killed_actor_is_no_loss(ray_cluster: None, checkpoint: Checkpoint, tmp_path: Path, small_chunks: None) -> None:
    settings = FAST.model_copy(update={"workers": 1})
    killed: list[int] = []

    def kill(_event: dict[str, Any]) -> None:
        if not killed:
            killed.extend(workers_alive("DecodingWorker"))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    folder = run(checkpoint, make_set(tmp_path / "second", "second"), tmp_path / "out", settings, kill)
    assert killed
    assert list(read_lines(folder / "second.de")) == Translator(checkpoint.folder, FAST).translate(SENTENCES[::-1] * 6)


@pytest.mark.parametrize(
    ("device", "workers", "n_actors", "n_chunks"),
    [
        ("cpu", 1, 1, 7),
        ("cpu", 8, 8, 32),
        ("cpu", 64, 64, 64),
        ("cpu", 6400, 91, 91),
        ("cuda", 4, 4, 4),
        ("cuda", 32, 5, 5),
    ],
)
def test_many_processors_start_few_actors(device: str, workers: int, n_actors: int, n_chunks: int) -> None:
    """3,003 sentences, as in newstest2014: every chunk fills its actor, and the actors finish together."""
    lines = [f"sentence {i}" for i in range(3003)]
    cut = decoding.chunks(lines, 4, device, workers)
    sizes = [len(chunk.lines) for chunk in cut]
    assert (min(workers, len(cut)), len(cut)) == (n_actors, n_chunks)
    assert min(sizes) * 4 > 0.8 * decoding.FULL_ROWS[device]
    assert -(-len(cut) // n_actors) * max(sizes) < 1.1 * 3003 / n_actors
    assert [line for chunk in cut for line in chunk.lines] == lines
    assert decoding.chunks(lines[:2], 4, device, workers) == [(0, lines[:2])]
    assert decoding.chunks([], 4, device, workers) == []


def test_batches_fit_into_an_actor_s_share_of_a_gpu() -> None:
    """A quarter of a large GPU decodes full batches of base. Less memory or a larger model means smaller batches."""
    quarter = {memory_gb: batch_tokens_within(memory_gb / 4 * 1e9, BASE) for memory_gb in (141, 60, 40, 8)}
    assert quarter[141] == 16_384
    assert 16_384 > quarter[60] > quarter[40] > quarter[8] == LONGEST_TOKENS
    assert batch_tokens_within(10e9, BIG) < quarter[40]
