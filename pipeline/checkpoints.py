"""Checkpoints of a training: what it takes to go on as if it had never stopped.

A checkpoint is a folder `<update:08d>`: `model.safetensors` (float32 masters), `model.json`, `optimizer.safetensors`
(Adam's moments and step of each weight), `state.json` (where the training is, its counters and its identity) and
`checksums.json` (sha256 of each file). It is written aside, flushed to the disk and renamed. A damaged one is passed
over, with a warning, for the one before.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from model.training_step import TrainingStep
from pipeline.artifacts import DISK_FULL, Artifact, file_sha256
from pipeline.errors import UserError

CHECKSUMS = "checksums.json"
log = logging.getLogger(__name__)


@dataclass
class TrainingState:
    """Where a training is. Random draws are seeded by (seed, update, micro-batch), so no generator is kept."""

    update: int = 0
    """Updates done."""
    epoch: int = 0
    """The epoch of the next update, from 0."""
    position: int = 0
    """The next update's place in its epoch's plan."""
    train_s: float = 0.0
    """Seconds spent on updates; validation and the writing of checkpoints are not counted."""
    source_tokens: int = 0
    target_tokens: int = 0
    padded_tokens: int = 0
    """Source and target tokens computed, padding counted."""
    counted_flop: float = 0.0
    matmul_flop_s: float = 0.0
    """Rate of a float32 product, measured before update 1."""
    identity: dict[str, Any] = field(default_factory=dict)
    """Settings and dataset that the training is of."""


def save(folder: Path, step: TrainingStep, state: TrainingState, keep: int) -> Path:
    """Publishes a checkpoint under `folder` and removes all but the newest `keep`. Returns its folder.

    Raises UserError where the disk is full.
    """
    target, aside = folder / f"{state.update:08d}", folder / f".making-{state.update:08d}"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        write_weights(aside, step.master.state_dict(), asdict(step.master.config))
        safetensors.torch.save_file(_optimizer_tensors(step), aside / "optimizer.safetensors")
        Artifact(aside).write_json("state.json", asdict(state))
        Artifact(aside).write_json(CHECKSUMS, {path.name: file_sha256(path) for path in sorted(aside.iterdir())})
        for path in aside.iterdir():
            _flush(path)
        if target.exists():  # a damaged one of the same update
            shutil.rmtree(target)
        os.rename(aside, target)
        _flush(folder)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if error.errno in DISK_FULL:
            raise UserError(
                f"the disk of {folder} is full: the checkpoint of update {state.update} was not written; "
                "free some space or lower keep_checkpoints, and run the same command again"
            ) from error
        raise
    for old in list_folders(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def list_folders(folder: Path) -> list[Path]:
    """Checkpoints under `folder`, oldest first, good or damaged."""
    return sorted(path for path in folder.glob("[0-9]*") if path.is_dir())


def load_newest(folder: Path, identity: dict[str, Any]) -> tuple[Path, TrainingState] | None:
    """The newest checkpoint whose checksums hold, None where there is none; damaged ones are passed over, warned of.

    Raises UserError where it belongs to another training: the fields that differ are named.
    """
    for checkpoint in reversed(list_folders(folder)):
        damage = find_damage(checkpoint)
        if damage:
            log.warning("checkpoint %s is damaged (%s) and passed over for the one before", checkpoint, damage)
            continue
        state = TrainingState(**Artifact(checkpoint).read_json("state.json"))
        differing = list(_differences(state.identity, json.loads(json.dumps(identity))))
        if differing:
            raise UserError(
                f"checkpoint {checkpoint} is of another training: {'; '.join(differing)}; "
                f"go back to its settings, or remove {folder} to start anew"
            )
        return checkpoint, state
    return None


def find_damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint's files, None where their checksums hold."""
    try:
        checksums = json.loads((checkpoint / CHECKSUMS).read_text(encoding="utf-8"))
        for name, expected in checksums.items():
            if file_sha256(checkpoint / name) != expected:
                return f"{name} does not have the sha256 of {CHECKSUMS}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, AttributeError) as error:
        return f"{CHECKSUMS}: {error}"
    return None


def restore(checkpoint: Path, step: TrainingStep) -> None:
    """Loads weights and Adam's state into a training step of the same model."""
    step.master.load_state_dict(safetensors.torch.load_file(checkpoint / "model.safetensors"))
    tensors = safetensors.torch.load_file(checkpoint / "optimizer.safetensors")
    state: dict[int, dict[str, Tensor]] = {}
    for number, (name, _) in enumerate(step.master.named_parameters()):
        state[number] = {key: tensors[f"{name}.{key}"] for key in ("step", "exp_avg", "exp_avg_sq")}
    step.adam.load_state_dict({"state": state, "param_groups": step.adam.state_dict()["param_groups"]})
    step.refresh()


def write_weights(folder: Path, weights: dict[str, Tensor], config: dict[str, Any]) -> None:
    """`model.safetensors` and, from the fields of a TransformerConfig, `model.json`."""
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    Artifact(folder).write_json("model.json", config)


def _optimizer_tensors(step: TrainingStep) -> dict[str, Tensor]:
    adam_state = step.adam.state_dict()["state"]
    return {
        f"{name}.{key}": tensor.detach().cpu().contiguous()
        for number, (name, _) in enumerate(step.master.named_parameters())
        for key, tensor in adam_state[number].items()
    }


def _differences(then: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from _differences(then.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif then != now:
        yield f"{name} was {json.dumps(then)} and is {json.dumps(now)}"


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
