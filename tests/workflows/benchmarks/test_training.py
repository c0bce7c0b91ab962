"""`aiayn bench train`: a real run of the benchmark, the fairness of its peers, Ctrl-C and mistakes."""

import gzip
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.config import OptimizerConfig, TransformerConfig
from model.parameters import views
from model.training_step import TrainingStep
from model.transformer import Transformer
from pipeline.corpora.synthetic.lengths import LENGTHS, PairLengths, draw_lengths, write_dataset
from pipeline.errors import UserError
from pipeline.text.encoding import EncodedSplit
from tests.support.process_tree import interrupted, is_alive, wait_for_end
from tests.support.tiny_text import every_character
from workflows.benchmarks import training, training_contenders
from workflows.benchmarks.peer_models import Marian, TorchTransformer, copy_weights
from workflows.benchmarks.processes import ContenderError, ContenderProcess
from workflows.benchmarks.training import SMALL, Size, TrainingOptions
from workflows.benchmarks.training_contenders import PlainLoop, TrainingRound, TrainingWorkload, Work
from workflows.benchmarks.training_in_ray import OurLoopInRay
from workflows.benchmarks.training_rates import IN_RAY, MARIAN, OURS, TORCH, TrainingRates, figures
from workflows.profiles import MULTI30K, WMT14

ROOT = Path(__file__).parents[3]
TINY = TransformerConfig(vocabulary_size=300, n_layers=2, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16, dropout=0.0)
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ray", "mlflow", "transformers"):
            raise ImportError(f"{name} is not to be imported")
sys.meta_path.insert(0, Blocker())
"""
COMMAND = ["-m", "workflows.cli", "bench", "train", "--vocabulary-size=300", "--batch-tokens=400", "--threads=1"]


def test_command_without_ray_mlflow_and_transformers(tmp_path: Path) -> None:
    """The command prints one JSON object with consistent figures; a missing peer is null."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, *COMMAND, "--updates=1", "--rounds=2", "--device=cpu", "--precision=float32", "--json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert (result["size"], result["device"], result["dtype"]) == ("small", "cpu", "float32")
    ours, peer = result["contenders"]
    assert ours["target_tokens"] == peer["target_tokens"], "the contenders were given different batches"
    assert 500 < ours["target_tokens"] <= 800
    assert result["tokens_s"] == ours["tokens_s"]
    assert result["ratio_torch"] == pytest.approx(ours["tokens_s"] / peer["tokens_s"])
    low, high = result["ratio_torch_spread"]
    assert 0 < low <= high
    assert result["ratio_best_peer"] is None
    assert 0 < result["padding_fraction"] < 0.1
    assert 0 < result["roofline_fraction"] < 1
    assert result["roofline_fraction"] == pytest.approx(result["counted_flop_s"] / result["matmul_flop_s"])
    assert 0.1 < result["peak_memory_gb"] < 4
    assert not list(Path(tmp_path).glob("aiayn-bench-*"))


def test_without_peers() -> None:
    """Only our loop is started, and the peers' ratios are null."""
    tiny = Size("tiny", TINY, "multi30k", 400, 400, 1)
    alone = TrainingOptions(device="cpu", threads=1, rounds=1, updates=1, micro_batches=1, with_peers=False)
    result = training.measure(tiny, alone)
    assert [entry["name"] for entry in result["contenders"]] == ["aiayn"]
    assert (result["ratio_torch"], result["ratio_best_peer"]) == (None, None)
    assert result["tokens_s"] > 0


def test_micro_batches_rounds_and_profile(tmp_path: Path) -> None:
    """An update of four micro-batches is the same work for both loops; each round and the profile are on the disk."""
    tiny, rounds, trace = Size("tiny", TINY, "multi30k", 1200, 1200, 1), tmp_path / "rounds", tmp_path / "trace.json.gz"
    options = TrainingOptions(device="cpu", threads=1, rounds=2, updates=1, micro_batches=4, compiled=False)
    result = training.measure(tiny, replace(options, profile=trace, rounds_file=rounds))
    assert (result["micro_batches"], result["compiled"]) == (4, False)
    ours, peer = result["contenders"][:2]
    assert ours["target_tokens"] == peer["target_tokens"] > 1200
    lines = [json.loads(line) for line in rounds.read_text().splitlines()]
    assert [(line["name"], line["round"]) for line in lines if line["name"] in (OURS, TORCH)] == [
        (OURS, 1),
        (TORCH, 1),
        (OURS, 2),
        (TORCH, 2),
    ]
    assert sum(line["target_tokens"] for line in lines if line["name"] == OURS) == ours["target_tokens"]
    operations = result["profile"]["operations"]
    assert operations == sorted(operations, key=lambda one: -one["seconds"])
    assert any("mm" in one["name"] for one in operations)
    assert 0 < sum(one["seconds"] for one in operations) <= result["profile"]["operations_s"] + 1e-9
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def test_micro_batches_are_those_of_training() -> None:
    """The paper's models are measured in as many as they train with by default, the small one as profile multi30k."""
    assert {name: size.micro_batches for name, size in training.SIZES.items()} == {
        "small": MULTI30K.recipes["base"].training.micro_batches,
        "base": WMT14.recipes["base"].training.micro_batches,
        "big": WMT14.recipes["big"].training.micro_batches,
    }


def test_peers_compute_in_the_devices_own_type() -> None:
    """On a GPU with bfloat16 no peer is timed in float32, which it would compute without tensor cores."""
    marians = [(MARIAN, training_contenders.marian_bfloat16)] if find_spec("transformers") else []
    assert list(training._peers("gpu", True)) == [(TORCH, training_contenders.torch_bfloat16), *marians]
    assert next(training._peers("cpu", True)) == (TORCH, training_contenders.torch_float32)
    assert next(training._peers("gpu", False)) == (TORCH, training_contenders.torch_float32)


def workload(
    folder: Path, model: TransformerConfig, lengths: PairLengths, batch_tokens: int = 600, micro_batches: int = 1
) -> TrainingWorkload:
    """A workload for one thread in float32."""
    dataset = write_dataset(folder / "dataset", lengths, model.vocabulary_size)
    return TrainingWorkload(model, dataset, folder / "run", batch_tokens, "cpu", "float32", 1, micro_batches)


def _as_torch(ours: Transformer, peer: TorchTransformer) -> None:
    """Copies our weights into torch's module, whose attention biases are initialised to 0."""

    def attention(mine: Any, theirs: Any) -> None:
        theirs.in_proj_weight.copy_(torch.cat((mine.w_q.weight, mine.w_kv.weight)))
        theirs.out_proj.weight.copy_(mine.w_o.weight)

    def feed_forward(mine: Any, theirs: Any) -> None:
        theirs.linear1.load_state_dict(mine.w_1.state_dict())
        theirs.linear2.load_state_dict(mine.w_2.state_dict())

    peer.embedding.weight.copy_(ours.embedding.weight)
    for mine, theirs in zip(ours.encoder, peer.transformer.encoder.layers, strict=True):
        attention(mine.attention, theirs.self_attn)
        feed_forward(mine.feed_forward, theirs)
        theirs.norm1.load_state_dict(mine.attention_norm.state_dict())
        theirs.norm2.load_state_dict(mine.feed_forward_norm.state_dict())
    for mine, theirs in zip(ours.decoder, peer.transformer.decoder.layers, strict=True):
        attention(mine.self_attention, theirs.self_attn)
        attention(mine.cross_attention, theirs.multihead_attn)
        feed_forward(mine.feed_forward, theirs)
        theirs.norm1.load_state_dict(mine.self_attention_norm.state_dict())
        theirs.norm2.load_state_dict(mine.cross_attention_norm.state_dict())
        theirs.norm3.load_state_dict(mine.feed_forward_norm.state_dict())


@pytest.mark.parametrize("name", ["torch", "marian", "marian, learned positions"])
def test_peers_are_the_same_model(tmp_path: Path, name: str) -> None:
    """With dropout 0, copied weights and perturbed norms, a peer's loss and gradient equal ours: so does its work."""
    if name != "torch":
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = replace(TINY, positions="learned", max_positions=100) if "learned" in name else TINY
    ours = Transformer(config)
    with torch.no_grad():
        for parameter in ours.parameters():
            if parameter.dim() == 1:
                parameter += 0.2 * torch.randn_like(parameter)
    peer = PlainLoop(
        workload(tmp_path, config, replace(LENGTHS["multi30k"], pairs=500)),
        TorchTransformer if name == "torch" else Marian,
        torch.float32,
    )
    with torch.no_grad():
        (_as_torch if name == "torch" else copy_weights)(ours, peer.model)  # type: ignore[arg-type]
    source_BS, target_BT = peer.updates.split.batch(np.arange(40))
    step = TrainingStep(ours, OptimizerConfig(), torch.float32)
    sums = step.accumulate(source_BS, target_BT, seed=0)
    loss = peer.loss(source_BS, target_BT)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(sums.loss / sums.n_tokens), abs=1e-5)
    names = [name for name, _ in ours.named_parameters()]
    gradient = views(step.gradient_P, ours)[names.index("encoder.0.feed_forward.w_1.weight")]
    layer = peer.model.transformer.encoder.layers[0] if name == "torch" else peer.model.marian.model.encoder.layers[0]  # type: ignore[union-attr]
    theirs = (layer.linear1 if name == "torch" else layer.fc1).weight.grad  # type: ignore[union-attr, operator, index]
    assert float(theirs.norm()) == pytest.approx(float(gradient.norm() / sums.n_tokens), rel=1e-3)


def test_marian_has_one_size_of_head() -> None:
    """A model that MarianMT cannot express is refused, not copied in part."""
    pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="d_model / n_heads"):
        copy_weights(Transformer(replace(TINY, d_k=8)), Marian(TINY))


@pytest.mark.parametrize(("batch_tokens", "micro_batches"), [(600, 1), (1200, 3)])
def test_loops_learn(tmp_path: Path, batch_tokens: int, micro_batches: int) -> None:
    """Our loop and the plain one take the same updates with the same counts, and the plain one's weights change."""
    given = workload(tmp_path, TINY, replace(LENGTHS["multi30k"], pairs=1500), batch_tokens, micro_batches)
    peer, ours = training_contenders.torch_float32(given), training_contenders.OurLoop(given)
    before = peer.model.embedding.weight.detach().clone()  # type: ignore[union-attr, operator]
    assert peer.warm_up() == ours.warm_up() == "float32"
    assert peer.round(3).work == ours.round(3).work
    assert not torch.equal(before, peer.model.embedding.weight)  # type: ignore[arg-type]
    assert len((given.run_folder / "metrics.jsonl").read_text().split("\n")) == 3, "one line for each part"
    assert not (given.run_folder / "checkpoints").exists()


def _quantiles(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    return np.stack([np.percentile(side, [1, 5, 10, 25, 50, 75, 90, 95, 99]) for side in (source, target)])


def test_lengths_are_those_of_multi30k(data: Path, tmp_path: Path) -> None:
    """Drawn lengths match the quantiles, means and ratios of the real text encoded with 8 000 pieces."""
    from pipeline.corpora import multi30k
    from pipeline.settings import CleaningSettings, EncodingSettings
    from pipeline.store.artifact import Context
    from pipeline.text import cleaning, encoding, vocabulary

    def context(name: str) -> Context:
        (tmp_path / name).mkdir()
        return Context(tmp_path / name)

    corpus = multi30k.read(context("text"), multi30k.Multi30kSettings(data=data / "multi30k"))
    corpus = cleaning.clean(context("clean"), corpus, CleaningSettings())
    pieces = vocabulary.learn(context("vocabulary"), corpus, every_character(8000))
    real = EncodedSplit.open(encoding.encode(context("encoded"), corpus, pieces, EncodingSettings()), "train")
    drawn = draw_lengths(LENGTHS["multi30k"], 29_000, np.random.default_rng(1))
    assert np.abs(_quantiles(*drawn) - _quantiles(real.source_lengths, real.target_lengths)).max() <= 1
    assert drawn.mean(1) == pytest.approx([real.source_lengths.mean(), real.target_lengths.mean()], rel=0.015)
    spread = [np.percentile(t / s, [5, 50, 95]) for s, t in (drawn, (real.source_lengths, real.target_lengths))]
    assert spread[0] == pytest.approx(spread[1], abs=0.03)


def test_written_pairs(tmp_path: Path) -> None:
    """Ids lie in the vocabulary, END_ID is the only special one, low ids are frequent, a seed gives the same ids."""
    lengths = replace(LENGTHS["wmt14"], pairs=300)
    split = EncodedSplit.open(write_dataset(tmp_path / "a", lengths, 300), "train")
    again = EncodedSplit.open(write_dataset(tmp_path / "b", lengths, 300), "train")
    assert len(split) == 300
    source_BS, target_BT = split.batch(np.arange(300))
    assert torch.equal(target_BT, again.batch(np.arange(300))[1])
    words = torch.cat([side[side > 3] for side in (source_BS, target_BT)])
    assert (len(words) + 600) == split.source_lengths.sum() + split.target_lengths.sum()
    assert int(words.max()) < 300
    assert float((words == 4).float().mean()) == pytest.approx(np.log(2) / np.log(296), abs=0.01)


def test_a_killed_contender_is_reported() -> None:
    """A call ends when its process is killed, later calls end at once, and leaving the block ends the process."""
    with ContenderProcess(threading.Event) as waiting:
        assert waiting.call("is_set") is False
        threading.Timer(0.2, waiting.process.kill).start()
        with pytest.raises(ContenderError, match="killed by SIGKILL"):
            waiting.call("wait")
        with pytest.raises(ContenderError, match="killed by SIGKILL"):
            waiting.call("is_set")
    with ContenderProcess(threading.Event) as idle:
        pass
    assert not is_alive(idle.process.pid)


def _rates(name: str, seconds: list[float], failed: str | None = None, dtype: str = "float32") -> TrainingRates:
    rounds = [TrainingRound(Work(900, 1000, 2000, 1e9), second, 0.5) for second in seconds]
    return TrainingRates(name, dtype, rounds, failed)


def test_figures() -> None:
    """Ratios compare medians, spreads compare rounds; a failed peer has a null ratio and is never the best."""
    ours, slow, fast = _rates(OURS, [1, 2, 4]), _rates(MARIAN, [4, 4, 4]), _rates(MARIAN, [2, 3, 8], dtype="bfloat16")
    dead, in_ray = _rates(TORCH, [], "out of memory"), _rates(IN_RAY, [1, 2.1, 4])
    result = figures([ours, dead, slow, fast, _rates(MARIAN, [], "killed"), in_ray], [4e9, 1e9, 2e9], updates=5)
    assert (result["tokens_s"], result["ratio_torch"], result["best_peer"]) == (500, None, "MarianMT bfloat16")
    assert result["ratio_in_ray"] == pytest.approx(1.05)
    assert result["ratio_best_peer"] == pytest.approx(1.5)
    assert result["ratio_best_peer_spread"] == pytest.approx([1.5, 2])
    assert result["roofline_fraction"] == pytest.approx(0.25)
    assert result["padding_fraction"] == pytest.approx(0.05)
    assert result["contenders"][0]["update_s"] == pytest.approx(7 / 15)
    json.dumps(result)


@pytest.mark.slow
def test_in_ray_the_same_updates(tmp_path: Path) -> None:
    """A Ray Train worker takes the same updates as our loop alone, round after round."""
    given = workload(tmp_path, TINY, replace(LENGTHS["multi30k"], pairs=500))
    alone = training_contenders.OurLoop(given)
    alone.warm_up()
    with ContenderProcess(OurLoopInRay, given) as in_ray:
        in_ray.call("warm_up")
        for n_updates in (2, 3):
            assert in_ray.call("round", n_updates).work == alone.round(n_updates).work


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    """Ctrl-C, which reaches all processes of a terminal, ends them at once: status 130, one line, nothing left."""
    command = [sys.executable, *COMMAND, "--updates=100000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    status, errors, pids = interrupted(command, environment)
    assert status == 130
    assert errors == "stopped\n"
    assert wait_for_end(pids, timeout_s=10)
    assert not list(tmp_path.iterdir())


def test_mistakes_are_one_line() -> None:
    """Names that are not offered, and a GPU that is not there, are refused with one line."""
    for options in ({"size": "huge"}, {"device": "tpu"}, {"precision": "float8"}, {"lengths": "long"}):
        with pytest.raises(UserError, match=r"choose one of"):
            training.train(**options)  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no GPU"):
            training.measure(Size("tiny", SMALL, "multi30k", 100, 100, 1), TrainingOptions(device="gpu"))
