"""pipeline.training.loop: the curve is the same for any number of workers, and an interruption loses nothing."""

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.batch import Batch
from model.config import TransformerConfig
from model.training_step import TrainingStep
from model.transformer import Transformer
from pipeline.artifacts import Checkpoint, EncodedDataset, TrainingRun
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings, TrainingSettings
from pipeline.text.batching import plan_epoch
from pipeline.text.encoding import EncodedSplit
from pipeline.training import devices, loop, report
from pipeline.training.loop import Training
from pipeline.training.workers import Workers
from pipeline.warning_events import emitting_warnings
from tests.support.tiny_training import TINY, curve, metrics, train_in_processes, with_fields

pytestmark = pytest.mark.usefixtures("many_recoveries")


class StopError(Exception):
    """Stands for anything that ends a run from outside."""


def train_alone(dataset: EncodedDataset, settings: TrainingSettings, folder: Path) -> dict[str, Any]:
    return Training(Workers(), dataset, settings, folder).run().model_dump(mode="json")


def train_until(dataset: EncodedDataset, settings: TrainingSettings, folder: Path, update: int, where: str) -> None:
    """Trains until StopError: before or after the possible checkpoint of `update`, or in mid-update."""
    training = Training(Workers(), dataset, settings, folder)
    accumulate, asked_for = training.step.accumulate, 3 if where == "amid" else 1

    def stopping(batch: Batch) -> None:
        nonlocal asked_for
        if training.state.update == update - (where == "amid"):
            asked_for -= 1
            if not asked_for:
                raise StopError
        accumulate(batch)

    def emit(event: dict[str, Any]) -> None:
        if event.get("step") == update:
            raise StopError

    if where == "before":
        training.report.emit = emit
    training.step.accumulate = stopping
    with training.writer:
        training.train()


@pytest.fixture(scope="module")
def alone_exactly(dataset: EncodedDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone_exactly")
    (folder / "run.json").write_text(json.dumps(train_alone(dataset, with_fields(exact_reduction=True), folder)))
    return folder


def test_gradient_is_that_of_one_batch_of_all_pairs(dataset: EncodedDataset, tmp_path: Path) -> None:
    """Loss, NLL and gradient norm of update 1 equal a single batch of all its pairs, per target token."""
    model = TransformerConfig(**{**TINY.model_dump()["model"], "dropout": 0.0})
    settings = with_fields(model=model, updates=1)
    train_alone(dataset, settings, tmp_path)
    split = EncodedSplit.open(dataset, "train")
    plan = plan_epoch(split.source_lengths, split.target_lengths, settings, epoch=0)
    torch.manual_seed(settings.seed)
    step = TrainingStep(Transformer(model), settings.optimizer, torch.float32)
    step.accumulate(Batch.padded(*split.batch(np.concatenate(plan[0])), torch.float32))
    line = metrics(tmp_path)[0]
    n_tokens = int(plan.real_tokens[plan.dealt[0], 1].sum())
    assert line["target_tokens"] == n_tokens
    loss, nll, norm = step.apply(1, n_tokens).tolist()
    assert line["loss"] == pytest.approx(loss / n_tokens, rel=1e-5)
    assert line["nll"] == pytest.approx(nll / n_tokens, rel=1e-5)
    assert line["gradient_norm"] == pytest.approx(norm, rel=1e-4)


def test_lines_have_speed_memory_and_translations(one_worker: Path, trained: Checkpoint) -> None:
    """They agree with run.json, and the samples are greedy translations by the model of that update."""
    record = TrainingRun(one_worker).load()
    lines = [json.loads(line) for line in (one_worker / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "flop_s" in line]
    seconds = np.diff([0.0, *(line["train_s"] for line in logged)])
    assert sum(seconds * [line["flop_s"] for line in logged]) == pytest.approx(record.counted_flop)
    assert sum(line["data_wait_s"] for line in logged) == pytest.approx(record.data_wait_s)
    assert 0 < record.data_wait_s < record.train_s
    assert 0.1 < logged[-1]["peak_memory_gb"] == record.peak_memory_gb < 4
    samples = lines[-1]["samples"]
    translator = Translator(trained.folder, DecodingSettings(beam_size=1, dtype="float32"))
    assert translator.translate([each["source"] for each in samples]) == [each["translation"] for each in samples]
    assert len(samples) == 3
    assert all(each["reference"] for each in samples)


@pytest.mark.parametrize(
    ("update", "where", "exact"),
    [
        (1, "before", False),
        (3, "before", False),
        (3, "after", True),
        (5, "amid", False),
        (5, "amid", True),
        (7, "after", False),
    ],
    ids=["no checkpoint yet", "before one", "after one", "in an update", "in an exact update", "at an epoch's end"],
)
def test_stopped_and_continued_ends_in_the_same_bits(
    update: int, where: str, exact: bool, one_worker: Path, alone_exactly: Path, dataset: EncodedDataset, tmp_path: Path
) -> None:
    """Weights, Adam's state, losses and counters equal an uninterrupted run's."""
    settings, uninterrupted = with_fields(exact_reduction=exact), alone_exactly if exact else one_worker
    with pytest.raises(StopError):
        train_until(dataset, settings, tmp_path, update, where)
    (tmp_path / "metrics.jsonl").open("a").write('{"update": 4, "lo')  # like a kill in the middle of a write
    record = train_alone(dataset, settings, tmp_path)
    last = f"recovery/{TINY.updates:08d}"
    kept = [f"checkpoints/{update:08d}" for update in (3, 6, 9)]
    for file in (f"{last}/optimizer.safetensors", *(f"{folder}/model.safetensors" for folder in (last, *kept))):
        assert (tmp_path / file).read_bytes() == (uninterrupted / file).read_bytes()
    assert metrics(tmp_path) == metrics(uninterrupted)
    run_json = json.loads((uninterrupted / "run.json").read_text())
    for name in ("updates", "epochs", "source_tokens", "target_tokens", "counted_flop", "checkpoints"):
        assert record[name] == run_json[name]


def test_continued_by_three_workers_where_one_began(one_worker: Path, dataset: EncodedDataset, tmp_path: Path) -> None:
    """Checkpoints do not depend on the number of workers: three, with unequal shares, continue on the same curve."""
    with pytest.raises(StopError):
        train_until(dataset, TINY, tmp_path, 5, "before")
    train_in_processes(3, dataset, TINY, tmp_path)
    assert curve(tmp_path) == pytest.approx(curve(one_worker), rel=1e-4)


def test_continued_when_all_is_done_changes_nothing(one_worker: Path, dataset: EncodedDataset, tmp_path: Path) -> None:
    """After a kill between the last checkpoint and run.json, the same command writes the same record but for times."""
    shutil.copytree(one_worker, tmp_path, dirs_exist_ok=True)
    record, before = train_alone(dataset, TINY, tmp_path), json.loads((one_worker / "run.json").read_text())
    assert record.pop("loop_s") < before.pop("loop_s")
    assert [*before.pop("start_s")] == ["data", "model", "largest", "rest"]
    assert [*record.pop("start_s")] == ["data", "model"]
    assert record == before
    assert metrics(tmp_path) == metrics(one_worker)


@pytest.mark.parametrize(("dtype", "every", "written"), [("bfloat16", 1, [1]), ("float32", 5, [])])
def test_loss_that_is_not_finite_ends_the_training(
    dtype: str, every: int, written: list[int], dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With progress after every update, it is an error only at a logged update, where all ranks check it."""
    monkeypatch.setattr(report, "PROGRESS_S", 0.0)
    optimizer, events = TINY.optimizer.__class__(learning_rate_scale=1e30), list[dict[str, Any]]()
    lengths = {"log_updates": every, "validation_updates": 100, "checkpoint_updates": 9}
    settings = with_fields(optimizer=optimizer, dtype=dtype, **lengths)
    training = Training(Workers(), dataset, settings, tmp_path, events.append)
    message = r"update 2 \(epoch 0\).*learning_rate_scale \(now 1e\+30\)"
    with pytest.raises(UserError, match=message) as caught, training.writer:
        training.train()
    assert "\n" not in str(caught.value)
    (tmp_path / "metrics.jsonl").touch()
    assert [line["update"] for line in metrics(tmp_path)] == written
    assert training.state.update == max(2, every)
    assert [event["done"] for event in events if "done" in event] == [1]
    assert {path.name for path in tmp_path.glob("*/0*")} <= {"00000001"}  # nothing is saved from update 2 on


def test_settings_that_do_not_fit_the_dataset(dataset: EncodedDataset, tmp_path: Path) -> None:
    model = TINY.model_dump()["model"]
    for fields, message in (
        ({"model": TransformerConfig(**{**model, "vocabulary_size": 900})}, r"vocabulary_size = 900, .* 800 pieces"),
        ({"model": TransformerConfig(**{**model, "positions": "learned", "max_positions": 9})}, "max_positions = 9"),
        ({"budget_tokens": 100_000}, "budget_tokens = 100000"),
    ):
        with pytest.raises(UserError, match=message):
            train_alone(dataset, with_fields(**fields), tmp_path)


def test_garbage_at_chosen_updates(dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a run it runs only after validation and every second update, as set here. An error ends this."""
    monkeypatch.setattr(loop, "COLLECT_UPDATES", 2)
    validated = [n for n in range(1, 9) if n % TINY.validation_updates == 0 or n in TINY.kept_updates]
    training = Training(Workers(), dataset, TINY, tmp_path)
    after, frozen = list[int](), list[int]()

    def note(phase: str, info: dict[str, int]) -> None:
        after.append(training.state.update)

    def emit(event: dict[str, Any]) -> None:
        frozen.append(gc.get_freeze_count())
        if event.get("step") == 1:
            gc.callbacks.append(note)
        if event.get("step") == 8:
            raise StopError

    training.report.emit = emit
    with pytest.raises(StopError), training.writer:
        training.train()
    gc.callbacks.remove(note)
    assert [*dict.fromkeys(after)] == sorted({2, 4, 6, 8, *validated})  # twice each: at begin and end
    assert min(frozen) > 10_000
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


class Unconnected(Workers):
    """Rank 0 of two workers, recording its copies. The other worker never answers."""

    def broadcast(self, tensor: Tensor) -> None:
        NOTED.append("copy")

    def all_reduce(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast_object(self, value: Any) -> Any:
        return value

    def gather_objects(self, value: Any) -> list[Any]:
        return [value, value]


NOTED: list[str] = []


def test_weights_are_copied_at_first(dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL must have connected and allocated its memory before the trial."""
    NOTED.clear()
    training = Training(Unconnected(0, 2), dataset, TINY, tmp_path)
    accumulate = training.step.accumulate

    def noting(batch: Batch) -> None:
        NOTED.append("compute")
        accumulate(batch)

    training.step.accumulate = noting
    with training.writer:
        training.train(1)
    first = NOTED.index("compute")
    assert NOTED[:first] == ["copy"] * 4  # weights, and Adam's steps and moments
    assert NOTED[first:].count("compute") == len(training.updates.largest()) + training.updates.n_passes


def test_run_json_counts_what_was_trained(one_worker: Path, dataset: EncodedDataset) -> None:
    """Tokens equal the sum over the plan's updates, and an epoch has every pair once."""
    record = json.loads((one_worker / "run.json").read_text())
    split = EncodedSplit.open(dataset, "train")
    lines = [line for line in metrics(one_worker) if "loss" in line]
    assert record["target_tokens"] == sum(line["target_tokens"] for line in lines)
    assert sum([line["target_tokens"] for line in lines if line["epoch"] == 0]) == split.target_lengths.sum()
    assert 0 < record["padding_fraction"] < 0.1
    assert record["parameters"] == sum(p.numel() for p in Transformer(TINY.model).parameters())


def test_an_unrecorded_graph_is_told(dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning has the reason, training continues, and run.json records batches as packed but not captured."""
    monkeypatch.setattr(devices, "can_pack", lambda *_: True)
    events: list[dict[str, Any]] = []
    training = Training(Workers(), dataset, with_fields(updates=1, dtype="bfloat16"), tmp_path, events.append)
    (segment,) = emitting_warnings(events.append, training.run).segments
    assert (segment.packed, segment.captured) == (True, False)
    (warning,) = (event["warning"] for event in events if "warning" in event)
    assert "1 of 1 workers compute passes without a CUDA graph" in warning
    assert any(cause in warning for cause in ("CUDAGraph", "CUDA error"))  # as torch is for CPUs or GPUs
