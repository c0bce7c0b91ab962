"""What the workers agree on before any of them builds the model: the dtype, and whether layers are compiled.

Both decide what is computed, so they are the same at every worker. A training keeps the dtype that it began in,
whoever continues it: the checkpoints record it.
"""

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from pipeline.errors import UserError
from pipeline.hardware import compiles, compute_dtype, device_name, instruction_set, multiplies_bfloat16
from pipeline.settings import TrainingSettings
from pipeline.training.checkpoints import TrainingState
from pipeline.training.worker_group import WorkerGroup


class WorkerDevice(NamedTuple):
    """What a worker tells the others about where it computes."""

    host: str
    name: str
    """The name of the GPU or processor."""
    multiplies_bfloat16: bool
    """Tells whether it does so natively."""
    gains_by_bfloat16: bool
    """Tells whether it computes in bfloat16 if nobody says otherwise."""
    compiles: bool
    instruction_set: str
    torch_version: str

    @classmethod
    def here(cls, device: str, may_compile: bool) -> "WorkerDevice":
        """Describes a device of this process."""
        return cls(
            platform.node(),
            device_name(device),
            multiplies_bfloat16(device),
            compute_dtype(device) == torch.bfloat16,
            may_compile and compiles(device),
            instruction_set(device),
            torch.__version__,
        )


class Agreement(NamedTuple):
    """How a group of workers computes."""

    dtype: torch.dtype
    """The dtype of the matrix products."""
    compiled: bool
    """Tells whether layers are compiled; compiled ones draw other dropout masks, so it is all workers or none."""
    devices: list[WorkerDevice]
    """The device of each rank."""

    @property
    def rounds_alike(self) -> bool:
        """Whether the same optimizer step gives the same bits at all ranks."""
        return len({(device.instruction_set, device.torch_version) for device in self.devices}) == 1


def agree(group: WorkerGroup, settings: TrainingSettings, state: TrainingState, checkpoints: Path) -> Agreement:
    """Settles the dtype of a training that begins or continues from `state`; every rank must call it.

    A `dtype` other than auto is followed. With auto, a training that continues keeps the type in its checkpoint,
    and a new one computes in bfloat16 if every device gains by that, otherwise in float32. Raises UserError at every
    rank if updates remain to be done in bfloat16 and a device does not multiply it natively; `checkpoints` is the
    folder that it names.
    """
    # Deterministic Inductor waits for a GPU at each gradient of a look-up, which rules out a CUDA graph.
    may_compile = settings.compiled and not settings.exact_reduction
    devices = group.gathered(WorkerDevice.here(group.device, may_compile))
    faster = "bfloat16" if all(device.gains_by_bfloat16 for device in devices) else "float32"
    dtype = (state.dtype or faster) if settings.dtype == "auto" else settings.dtype
    lacking = [device for device in devices if not device.multiplies_bfloat16]
    if settings.dtype == "auto" and dtype == "bfloat16" and lacking and state.update < settings.updates:
        raise UserError(
            f"this training began in bfloat16, which {_named(lacking)} cannot multiply natively; continue it on "
            f"machines that can, or move {checkpoints} elsewhere to start over in float32"
        )
    return Agreement(getattr(torch, dtype), all(device.compiles for device in devices), devices)


def _named(devices: Iterable[WorkerDevice]) -> str:
    return " and ".join(dict.fromkeys(f"{device.host} ({device.name})" for device in devices))
