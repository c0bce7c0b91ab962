"""Checkpoints of a run: those kept for averaging, and those for exact resumption after an interruption.

`checkpoints/<update:08d>` holds `model.safetensors` (the float32 master weights) and `model.json`. The settings decide
which updates are kept (`TrainingSettings.kept_updates`), never a clock, so averages do not depend on interruptions.

`recovery/<update:08d>` adds `optimizer.safetensors` (Adam's moments and step by weight) and `state.json` (progress,
counters and the run's identity). It is written whenever that costs little time (`RECOVERY_SHARE`), and at
the end. The newest two are retained; a finished run retains the last.

Both are artifacts (`pipeline.store.artifact`), published in the background and synced to disk. A damaged one is set
aside with a warning and the previous one is used. A finished run with damaged files resumes the same way, usually from
its end.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
from pydantic import TypeAdapter
from torch import Tensor

from model.training_step import Adam, TrainingStep, views
from pipeline.artifacts import METRICS, read_metrics_line
from pipeline.errors import UserError
from pipeline.records import Segment
from pipeline.settings import flatten
from pipeline.store.artifact import Artifact, publish
from pipeline.store.build import Build
from pipeline.store.folders import BUILD_PREFIX
from pipeline.store.tensors import write_tensors
from pipeline.training.workers import Workers

Tensors = dict[str, Tensor]
KEPT, RECOVERY = "checkpoints", "recovery"
"""The checkpoint folders of a run."""
MAX_RECOVERIES = 2
"""Number of recovery checkpoints to retain: the newest, plus a spare in case it is corrupt."""
RECOVERY_SHARE = 0.05
"""Largest share of time spent writing recovery checkpoints."""
log = logging.getLogger(__name__)


@dataclass
class TrainingState:
    """Progress of a run. It needs no random state, since dropout is a hash (`model.dropout`)."""

    update: int = 0
    """Number of updates done."""
    train_s: float = 0.0
    """Time spent on updates, as in `TrainingRecord`."""
    source_tokens: int = 0
    target_tokens: int = 0
    computed_tokens: int = 0
    """Source and target tokens, including padding."""
    data_wait_s: float = 0.0
    peak_memory_gb: float = 0.0
    """As in `TrainingRecord`."""
    identity: dict[str, Any] = field(default_factory=dict)
    """The settings and dataset that identify the run."""
    dtype: str = ""
    """The dtype of matrix products, also part of the identity; empty before the first update."""
    segments: list[Segment] = field(default_factory=list)
    """Time and devices by segment; the last one is current."""

    def spend(self, seconds: float) -> None:
        """Adds time spent on updates."""
        self.train_s += seconds
        self.segments[-1].train_s += seconds


class CheckpointWriter:
    """Publishes a run's checkpoints to `folder` in a background thread, one at a time.

    As a context manager, waits on exit for the checkpoint being written.
    """

    def __init__(self, folder: Path, build: Build | None = None) -> None:
        self.folder = folder
        self.build = build or Build(folder)
        """Shares the checkpoints with other nodes."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._beside: list[Future[None]] = []
        self._copies: Tensors = {}
        self._recovery_began_s = self._recovery_took_s = 0.0
        self.writes_recovery = True
        """Whether to write recovery checkpoints during the run; benchmarks disable them."""

    @property
    def recovery_is_due(self) -> bool:
        """Whether a recovery checkpoint would stay within its share of time and need not wait for another."""
        if not self.writes_recovery or not (self._writing is None or self._writing.done()):
            return False
        return self._recovery_took_s < RECOVERY_SHARE * (time.monotonic() - self._recovery_began_s)

    def begin(self, step: TrainingStep, state: TrainingState, *, kept: bool, recovery: bool, end: bool = False) -> None:
        """Snapshots the state, then writes it to one or both folders in the background.

        `end`: no update follows. First waits for the previous checkpoint. Raises UserError if the disk was too full for
        that one.
        """
        self.wait()
        began_s = time.monotonic()
        vectors_P = {"weights": step.adam.weights_P, **(_state_of(step.adam) if recovery else {})}
        copies_P = {name: self._buffer(name, vector_P) for name, vector_P in vectors_P.items()}
        wait_copied = step.copy_out([(copies_P[name], vector_P) for name, vector_P in vectors_P.items()])
        weights = _by_parameter(copies_P.pop("weights"), step)
        config, progress, update = asdict(step.master.config), asdict(state), state.update

        def write() -> None:
            wait_copied()
            if kept:  # first, because the recovery checkpoint relies on it
                self._publish(KEPT, update, weights, config)
            if recovery:
                self._publish(RECOVERY, update, weights, config, _optimizer_tensors(copies_P, step), progress)
                self.prune(1 if end else MAX_RECOVERIES)
                self._recovery_began_s, self._recovery_took_s = began_s, time.monotonic() - began_s

        self._writing = self._thread.submit(write)

    def keep_beside(self, file: str) -> None:
        """Queues a file beside the checkpoints to be shared with other nodes.

        Errors are raised by the next `begin` or `wait`, or on exit.
        """
        self._beside.append(self._thread.submit(self.build.keep, file))

    def set_aside(self, continued: Path | None) -> None:
        """Sets aside the checkpoints that will be rewritten when a run resumes from `continued`.

        These are the later recovery checkpoints, which were skipped; with None (the run starts over), all of both
        kinds. Raises LockLostError, and BucketError if the bucket does not answer.
        """
        kinds = (RECOVERY,) if continued else (RECOVERY, KEPT)
        folders = [folder for kind in kinds for folder in list_folders(self.folder / kind)]
        parts = [
            folder.relative_to(self.folder).as_posix() for folder in folders if not continued or folder > continued
        ]
        if parts:
            log.warning("moved %s to %s", ", ".join(parts), self.build.set_aside(parts))

    def prune(self, most: int) -> None:
        """Removes all but the newest `most` recovery checkpoints. Raises LockLostError."""
        self.build.check()
        for old in list_folders(self.folder / RECOVERY)[:-most]:
            self.build.drop(f"{RECOVERY}/{old.name}")
            shutil.rmtree(old)

    def wait(self) -> None:
        """Blocks until the last checkpoint is published. Raises UserError if the disk is too full for it."""
        unfinished = [*self._beside, *([self._writing] if self._writing else [])]
        self._beside, self._writing = [], None
        for future in unfinished:
            future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, raised: type[BaseException] | None, *details: object) -> None:
        self._thread.shutdown()
        if raised is None:
            self.wait()

    def _buffer(self, name: str, vector_P: Tensor) -> Tensor:
        """Returns a vector's host buffer, reused by every checkpoint, since allocation would take longer."""
        if name not in self._copies:
            self._copies[name] = torch.empty_like(vector_P, device="cpu", pin_memory=vector_P.is_cuda)
        return self._copies[name]

    def _publish(
        self,
        kind: str,
        update: int,
        weights: Tensors,
        config: dict[str, Any],
        optimizer: Tensors | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.build.check()
        target = self.folder / kind / f"{update:08d}"
        for leftover in target.parent.glob(f"{BUILD_PREFIX}*"):  # left by a killed process
            shutil.rmtree(leftover)
        if target.exists():  # damaged, or rewritten after an interruption
            shutil.rmtree(target)

        def make(folder: Path) -> Artifact:
            write_weights(folder, weights, config)
            if optimizer and state:
                write_tensors(folder / "optimizer.safetensors", optimizer)
                Artifact(folder).write_json("state.json", state)
            return Artifact(folder)

        publish(target, make, {"update": update}, flush=True)
        self.build.keep(METRICS)  # first: it may go past the checkpoint, but not end before it
        self.build.keep(f"{kind}/{target.name}")


def list_folders(folder: Path) -> list[Path]:
    """Lists the checkpoints in `folder`, oldest first, intact or not."""
    return sorted(path for path in folder.glob("[0-9]*") if path.is_dir())


def load_newest(folder: Path, identity: dict[str, Any], kept: Sequence[int]) -> tuple[Path, TrainingState] | None:
    """Returns the newest checkpoint from which the run in `folder` can resume, or None; warns about skipped ones.

    It and all scheduled checkpoints among `kept` before it must be intact. Raises UserError, naming the differing
    fields if it belongs to another run.
    """
    for checkpoint in reversed(list_folders(folder / RECOVERY)):
        relied_on = [folder / KEPT / f"{update:08d}" for update in kept if update <= int(checkpoint.name)]
        # Hashes are checked at each start, possibly after a machine crash: `_restore` reads all files anyway.
        damages = ((path, Artifact(path).damage(again=True)) for path in (checkpoint, *relied_on))
        damaged = next(((path, damage) for path, damage in damages if damage), None)
        if damaged:
            log.warning("checkpoint %s is damaged (%s); skipping %s", *damaged, checkpoint)
            continue
        state = Artifact(checkpoint).read("state.json", TypeAdapter(TrainingState))
        was, now = flatten(state.identity), flatten(json.loads(json.dumps(identity)))
        names = [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]
        differing = [f"{name} was {json.dumps(was.get(name))} and is {json.dumps(now.get(name))}" for name in names]
        if differing:
            raise UserError(
                f"checkpoint {checkpoint} belongs to another run: {'; '.join(differing)}; "
                f"restore its settings, or move {folder / RECOVERY} elsewhere to start over"
            )
        return checkpoint, state
    return None


def _restore(checkpoint: Path, step: TrainingStep) -> None:
    """Loads master weights and Adam's state into a training step of the same model."""
    step.master.load_state_dict(safetensors.torch.load_file(checkpoint / "model.safetensors"))
    tensors = safetensors.torch.load_file(checkpoint / "optimizer.safetensors")
    names = [name for name, _ in step.master.named_parameters()]
    state = _state_of(step.adam)
    state.pop("step").copy_(tensors[f"{names[0]}.step"])
    for key, moment_P in state.items():
        moment_P.copy_(torch.cat([tensors[f"{name}.{key}"].flatten() for name in names]))


def restore_all(workers: Workers, checkpoint: Path | None, step: TrainingStep) -> None:
    """Restores rank 0's checkpoint, or broadcasts its initial weights; other ranks need neither file."""
    if checkpoint:
        _restore(checkpoint, step)
    for tensor in (step.adam.weights_P, *_state_of(step.adam).values()):
        workers.broadcast(tensor)
    step.copy_weights()


def truncate_metrics(path: Path, update: int) -> None:
    """Truncates metrics.jsonl after `update`, because those lines will be rewritten, and drops a half-written line.

    Unreadable lines before it are dropped with a warning.
    """
    if not path.exists():
        return
    kept, damaged = [], []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        content = read_metrics_line(line)
        if content is None:
            damaged += [number] if number < len(lines) else []  # the last line is empty or half-written
        elif content["update"] <= update:
            kept.append(line + b"\n")
    if damaged:
        log.warning("%s: dropped damaged lines %s", path, ", ".join(map(str, damaged)))
    aside = path.with_suffix(".making")
    aside.write_bytes(b"".join(kept))
    os.replace(aside, path)


def write_weights(folder: Path, weights: Tensors, config: dict[str, Any]) -> None:
    """Writes `model.safetensors`, and `model.json` from the fields of a TransformerConfig."""
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    write_tensors(folder / "model.safetensors", tensors)
    Artifact(folder).write_json("model.json", config)


def _by_parameter(values_P: Tensor, step: TrainingStep) -> Tensors:
    """Returns views of a flat vector by parameter name."""
    names = [name for name, _ in step.master.named_parameters()]
    return dict(zip(names, views(values_P, step.master), strict=True))


def _optimizer_tensors(state: Tensors, step: TrainingStep) -> Tensors:
    """Returns Adam's state by weight, in torch.optim.Adam's format."""
    moments = ((key, _by_parameter(state[key], step).items()) for key in ("exp_avg", "exp_avg_sq"))
    tensors = {f"{name}.{key}": moment for key, named in moments for name, moment in named}
    return tensors | {f"{name}.step": state["step"].clone() for name, _ in step.master.named_parameters()}


def _state_of(adam: Adam) -> Tensors:
    """Returns the state by torch.optim.Adam's names."""
    return {"step": adam.n_steps, "exp_avg": adam.mean_P, "exp_avg_sq": adam.square_P}
