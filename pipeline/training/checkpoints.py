"""Checkpoints of a training: those that are averaged, and those from which it continues as if it had never stopped.

`checkpoints/<update:08d>` holds `model.safetensors` (the float32 master weights) and `model.json`. Which updates have
one is decided by the settings (`TrainingSettings.kept_updates`), never by a clock, so averages do not depend on kills.

`recovery/<update:08d>` has two files more: `optimizer.safetensors` (Adam's moments and step for each weight) and
`state.json` (progress, counters and identity of the training). It is written as often as that takes little of the time
(`RECOVERY_SHARE`), before a machine goes and at the end; the newest two stay, of a finished training only the last.

Both are artifacts (`pipeline.store.artifact`), published while training goes on and flushed to the disk. A damaged one
is set aside with a warning, and the one before it is used. A finished training whose files are damaged continues in the
same way, usually from its end.
"""

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from torch import Tensor

from model.training_step import Adam, TrainingStep, views
from pipeline.errors import UserError
from pipeline.store.artifact import Artifact, publish
from pipeline.store.artifacts import METRICS, read_metrics_line
from pipeline.store.records import Segment
from pipeline.store.scratch import BUILD_PREFIX, Scratch
from pipeline.training.workers import Workers

Tensors = dict[str, Tensor]
KEPT, RECOVERY = "checkpoints", "recovery"
"""The folders of a training that hold its checkpoints."""
MAX_RECOVERIES = 2
"""Checkpoints for recovery that a training has at a time: one, and one in case that is damaged."""
RECOVERY_SHARE = 0.05
"""Largest share of the time in which a checkpoint for recovery is being written."""
log = logging.getLogger(__name__)


@dataclass
class TrainingState:
    """How far a training is. It holds no random state, because draws are seeded by (seed, update, micro-batch)."""

    update: int = 0
    """Number of updates done."""
    train_s: float = 0.0
    """Time spent on updates, as in `TrainingRecord`."""
    source_tokens: int = 0
    target_tokens: int = 0
    computed_tokens: int = 0
    """Source and target tokens together, including padding."""
    counted_flop: float = 0.0
    identity: dict[str, Any] = field(default_factory=dict)
    """The settings and dataset that identify the training."""
    dtype: str = ""
    """The dtype of the matrix products, which identifies the training too; empty before the first update."""
    segments: list[Segment] = field(default_factory=list)
    """Who computed which part of `train_s`; the last one grows."""

    def spend(self, seconds: float) -> None:
        """Adds time spent on updates."""
        self.train_s += seconds
        self.segments[-1].train_s += seconds


class CheckpointWriter:
    """Publishes the checkpoints of the training in `folder` from its own thread, one at a time.

    As a context manager, it waits at the end for the checkpoint being written.
    """

    def __init__(self, folder: Path, scratch: Scratch | None = None) -> None:
        self.folder = folder
        self.scratch = scratch or Scratch(folder)
        """Through which other nodes find the checkpoints."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._beside: list[Future[None]] = []
        self._copies: Tensors = {}
        self._recovery_began_s = self._recovery_took_s = 0.0
        self.writes_recovery = True
        """Whether checkpoints for recovery are written while the run goes on; a benchmark does without."""

    @property
    def recovery_is_due(self) -> bool:
        """Whether a checkpoint for recovery would take no more than its share of the time, and wait for no other."""
        if not self.writes_recovery or not (self._writing is None or self._writing.done()):
            return False
        return self._recovery_took_s < RECOVERY_SHARE * (time.monotonic() - self._recovery_began_s)

    def begin(self, step: TrainingStep, state: TrainingState, *, kept: bool, recovery: bool, end: bool = False) -> None:
        """Takes a copy that later updates do not change, and starts writing it to one folder or both.

        `end` says that no update follows. It first waits for the previous checkpoint. Raises UserError if the disk was
        too full for that one.
        """
        self.wait()
        began_s = time.monotonic()
        vectors_P = {"weights": step.adam.weights_P, **(_moments(step.adam) if recovery else {})}
        copies_P = {name: self._copy(name, vector_P) for name, vector_P in vectors_P.items()}
        weights = _by_parameter(copies_P.pop("weights"), step)
        optimizer = _optimizer_tensors(copies_P, step.adam.n_steps.cpu(), step) if recovery else {}
        config, progress, update = asdict(step.master.config), asdict(state), state.update

        def write() -> None:
            if kept:  # first: what is recovered relies on it
                self._publish(KEPT, update, weights, config)
            if recovery:
                self._publish(RECOVERY, update, weights, config, optimizer, progress)
                self.prune(1 if end else MAX_RECOVERIES)
                self._recovery_began_s, self._recovery_took_s = began_s, time.monotonic() - began_s

        self._writing = self._thread.submit(write)

    def keep_beside(self, file: str) -> None:
        """Lets other nodes find a file beside the checkpoints, as soon as the thread comes to it.

        What that raises is raised by the next `begin` or `wait`, or where the context ends.
        """
        self._beside.append(self._thread.submit(self.scratch.keep, file))

    def set_aside(self, continued: Path | None) -> None:
        """Sets aside the checkpoints that a run will write again when it continues from the checkpoint `continued`.

        These are the later ones for recovery, which were skipped; or, if None, all of both kinds: the run starts over.
        Raises LockLostError, and BucketError where the bucket does not answer.
        """
        kinds = (RECOVERY,) if continued else (RECOVERY, KEPT)
        folders = [folder for kind in kinds for folder in list_folders(self.folder / kind)]
        parts = [
            folder.relative_to(self.folder).as_posix() for folder in folders if not continued or folder > continued
        ]
        if parts:
            log.warning("set %s aside, in %s", ", ".join(parts), self.scratch.set_aside(parts))

    def prune(self, most: int) -> None:
        """Removes all checkpoints for recovery but the newest `most`. Raises LockLostError."""
        self.scratch.check()
        for old in list_folders(self.folder / RECOVERY)[:-most]:
            self.scratch.drop(f"{RECOVERY}/{old.name}")
            shutil.rmtree(old)

    def wait(self) -> None:
        """Waits until the last checkpoint is published. Raises UserError if the disk is too full for it."""
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

    def _copy(self, name: str, vector_P: Tensor) -> Tensor:
        """Copies a vector into memory of the host that serves every checkpoint; new memory would take longer."""
        if name not in self._copies:
            self._copies[name] = torch.empty_like(vector_P, device="cpu", pin_memory=vector_P.is_cuda)
        return self._copies[name].copy_(vector_P.detach())

    def _publish(
        self,
        kind: str,
        update: int,
        weights: Tensors,
        config: dict[str, Any],
        optimizer: Tensors | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.scratch.check()
        target = self.folder / kind / f"{update:08d}"
        for leftover in target.parent.glob(f"{BUILD_PREFIX}*"):  # left by a killed process
            shutil.rmtree(leftover)
        if target.exists():  # a damaged checkpoint of the same update, or the same after a kill
            shutil.rmtree(target)

        def make(folder: Path) -> Artifact:
            write_weights(folder, weights, config)
            if optimizer and state:
                _write_tensors(folder / "optimizer.safetensors", optimizer)
                Artifact(folder).write_json("state.json", state)
            return Artifact(folder)

        publish(target, make, {"update": update}, flush=True)
        self.scratch.keep(METRICS)  # first: it may go beyond the checkpoint, but not end before it
        self.scratch.keep(f"{kind}/{target.name}")


def list_folders(folder: Path) -> list[Path]:
    """Lists the checkpoints in `folder`, oldest first, intact or damaged."""
    return sorted(path for path in folder.glob("[0-9]*") if path.is_dir())


def load_newest(folder: Path, identity: dict[str, Any], kept: Sequence[int]) -> tuple[Path, TrainingState] | None:
    """Returns the newest checkpoint from which the training in `folder` can go on, or None; warns of those it skips.

    It must be intact, and so must be those of the updates `kept` that were due before it. Raises UserError if it is
    another training's, naming the fields that differ, or was written by an earlier version.
    """
    for checkpoint in reversed(list_folders(folder / RECOVERY)):
        relied_on = [folder / KEPT / f"{update:08d}" for update in kept if update <= int(checkpoint.name)]
        # Read again at each start, which may follow a crash of the machine: all is read anyway, or lost if it is bad.
        damages = ((path, Artifact(path).damage(again=True)) for path in (checkpoint, *relied_on))
        damaged = next(((path, damage) for path, damage in damages if damage), None)
        if damaged:
            log.warning("checkpoint %s is damaged (%s); skipping %s", *damaged, checkpoint)
            continue
        if "segments" not in Artifact(checkpoint).read_json("state.json"):
            raise UserError(
                f"{checkpoint} was written by an earlier version, which plans other batches; continue the run with "
                f"that version, or move {folder / RECOVERY} elsewhere to start over"
            )
        state = Artifact(checkpoint).read("state.json", TypeAdapter(TrainingState))
        differing = list(_differences(state.identity, json.loads(json.dumps(identity))))
        if differing:
            raise UserError(
                f"checkpoint {checkpoint} belongs to another training: {'; '.join(differing)}; "
                f"restore its settings, or move {folder / RECOVERY} elsewhere to start over"
            )
        return checkpoint, state
    return None


def restore(checkpoint: Path, step: TrainingStep) -> None:
    """Loads the weights and Adam's state into a training step for the same model."""
    step.master.load_state_dict(safetensors.torch.load_file(checkpoint / "model.safetensors"))
    tensors = safetensors.torch.load_file(checkpoint / "optimizer.safetensors")
    names = [name for name, _ in step.master.named_parameters()]
    step.adam.n_steps.copy_(tensors[f"{names[0]}.step"])
    for key, moment_P in _moments(step.adam).items():
        moment_P.copy_(torch.cat([tensors[f"{name}.{key}"].flatten() for name in names]))
    step.update_shadow()


def restore_all(workers: Workers, checkpoint: Path | None, step: TrainingStep) -> None:
    """Restores rank 0's checkpoint at all ranks, or copies its first weights; the others need not have either."""
    if checkpoint:
        restore(checkpoint, step)
    if workers.size == 1:
        return
    for tensor in (step.adam.weights_P, step.adam.n_steps, *_moments(step.adam).values()):
        workers.copy_first(tensor)
    step.update_shadow()


def cut_metrics(path: Path, update: int) -> None:
    """Drops the lines of metrics.jsonl after `update`, which will be written again, and any half-written line.

    Lines before it that cannot be read are dropped with a warning.
    """
    if not path.exists():
        return
    kept, damaged = [], []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        content = read_metrics_line(line)
        if content is None:
            damaged += [number] if number < len(lines) else []  # the last line is empty, or half of one
        elif content["update"] <= update:
            kept.append(line + b"\n")
    if damaged:
        log.warning("%s: dropped damaged lines %s", path, ", ".join(map(str, damaged)))
    aside = path.with_suffix(".making")
    aside.write_bytes(b"".join(kept))
    os.replace(aside, path)


def write_weights(folder: Path, weights: Tensors, config: dict[str, Any]) -> None:
    """Writes `model.safetensors` and, from the fields of a TransformerConfig, `model.json`."""
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    _write_tensors(folder / "model.safetensors", tensors)
    Artifact(folder).write_json("model.json", config)


def _write_tensors(path: Path, tensors: Tensors) -> None:
    try:
        safetensors.torch.save_file(tensors, path)
    except SafetensorError as error:  # safetensors wraps OSError
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise


def _by_parameter(values_P: Tensor, step: TrainingStep) -> Tensors:
    """Returns views of a vector by the names of the parameters."""
    names = [name for name, _ in step.master.named_parameters()]
    return dict(zip(names, views(values_P, step.master), strict=True))


def _optimizer_tensors(moments_P: Tensors, n_steps: Tensor, step: TrainingStep) -> Tensors:
    """Returns Adam's state by weight, as torch.optim.Adam has it for the weights one by one."""
    tensors = {f"{name}.step": n_steps.clone() for name, _ in step.master.named_parameters()}
    for key, moment_P in moments_P.items():
        tensors |= {f"{name}.{key}": moment for name, moment in _by_parameter(moment_P, step).items()}
    return tensors


def _moments(adam: Adam) -> Tensors:
    """Returns the moments by the names that torch.optim.Adam gives them."""
    return {"exp_avg": adam.mean_P, "exp_avg_sq": adam.square_P}


def _differences(then: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from _differences(then.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif then != now:
        yield f"{name} was {json.dumps(then)} and is {json.dumps(now)}"
