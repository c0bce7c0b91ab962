import json
import multiprocessing
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from model.config import OptimizerConfig, TransformerConfig
from pipeline.artifacts import EncodedDataset, TrainingRun
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import ArtifactT, publish
from pipeline.training.loop import Training
from pipeline.training.workers import Workers
from tests.chaos.comparison import CLOCK

PIECES = 800
TINY = TrainingSettings(
    model=TransformerConfig(
        vocabulary_size=PIECES, n_layers=1, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16, dropout=0.1
    ),
    optimizer=OptimizerConfig(warmup_steps=20),
    updates=9,
    budget_tokens=2060,
    pass_tokens=700,
    dtype="float32",
    checkpoint_updates=3,
    keep_checkpoints=3,
    validation_updates=3,
    log_updates=1,
    workers=2,
    device="cpu",
)
EPOCH_UPDATES = 7
"""Updates per epoch of the fixture `dataset`: update 7 ends the first one."""


def copied(artifact: ArtifactT, folder: Path) -> ArtifactT:
    return replace(artifact, folder=Path(shutil.copytree(artifact.folder, folder, dirs_exist_ok=True)))


def published(artifact: ArtifactT, folder: Path) -> ArtifactT:
    """Returns a copy with a manifest, as commands demand."""
    return publish(folder, partial(copied, artifact), {"fingerprint": folder.name})


def with_fields(**fields: Any) -> TrainingSettings:
    return TINY.model_copy(update=fields)


def weights(folder: Path, update: int = TINY.updates) -> bytes:
    return (folder / "checkpoints" / f"{update:08d}" / "model.safetensors").read_bytes()


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().split("\n")[:-1]
    return [{key: v for key, v in json.loads(line).items() if key not in CLOCK} for line in lines]


def curve(folder: Path) -> list[float]:
    return [line[name] for name in ("loss", "dev_loss") for line in metrics(folder) if name in line]


@contextmanager
def group(rank: int, size: int, port: int) -> Iterator[Workers]:
    """This process as one of `size` workers of a group, with one thread."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=size, rank=rank)
    yield Workers(rank, size)
    dist.destroy_process_group()


def work(rank: int, size: int, port: int, *arguments: Any, native: Sequence[bool] = ()) -> None:
    if native:
        emulate_cpu(native[rank])
    with group(rank, size, port) as workers:
        train_as(workers, *arguments)


def train_as(
    group: Workers, dataset: EncodedDataset, settings: TrainingSettings, folder: Path, until: int | None = None
) -> None:
    """Trains as one worker of a group up to update `until`. Without it, trains to the end and writes run.json."""
    folder.mkdir(exist_ok=True)
    if until is None:
        record = Training(group, dataset, settings, folder).run()
        if group.rank == 0:
            TrainingRun(folder).write(record)
        return
    training = Training(group, dataset, settings, folder)
    with training.writer:
        training.train(until)


def train_in_processes(
    size: int,
    dataset: EncodedDataset,
    settings: TrainingSettings,
    folder: Path,
    until: int | None = None,
    native: Sequence[bool] = (),
) -> Path:
    """Trains with `size` processes up to update `until`; `native`: whether each rank emulates native bfloat16."""
    start_processes(partial(work, native=native), (size, free_port(), dataset, settings, folder, until), size)
    return folder


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def emulate_cpu(native: bool, replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Emulates a CPU of AMD that multiplies bfloat16 natively or not."""
    replace(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": native, "sse4a": True})


def start_processes(function: Callable[..., None], arguments: tuple[Any, ...], size: int) -> None:
    """Runs `function(rank, *arguments)` in `size` forks of a process that has imported torch, and waits for them."""
    multiprocessing.set_forkserver_preload([__name__, "torch._dynamo", "pandas"])  # late imports of torch and pyarrow
    torch.multiprocessing.start_processes(function, arguments, nprocs=size, start_method="forkserver")


def kill_once(marker: Path, update: int, event: dict[str, Any]) -> None:
    """Kills its own process the first time it sees an update. Use it as `emit`."""
    if event.get("step") == update and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
