"""What the workers compute on, the dtype and form that they negotiate, and the segments of a run.

Dtype and form decide what is computed, so they are the same at every worker. A run keeps the dtype that it began in,
whoever continues it: the checkpoints record it.

A segment begins when the loop is started on other devices than before, with other threads, or with another torch. The
checkpoints hold the list, so work that is done again after a kill counts once.
"""

import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from model.attention import has_kernels
from model.config import TransformerConfig
from pipeline.errors import UserError
from pipeline.hardware import (
    compiles,
    compute_dtype,
    device_name,
    dtype_name,
    instruction_set,
    matmul_flop_s,
    multiplies_bfloat16,
)
from pipeline.settings import TrainingSettings
from pipeline.store.records import Segment, SegmentDevices
from pipeline.training.checkpoints import TrainingState
from pipeline.training.workers import Workers


class WorkerDevice(NamedTuple):
    """The device of one worker, as the others need to know it."""

    host: str
    name: str
    """The name of the GPU or CPU."""
    multiplies_bfloat16: bool
    """Whether it does so natively."""
    gains_by_bfloat16: bool
    """Whether it computes in bfloat16 where `dtype` is auto."""
    compiles: bool
    packs: bool
    """Whether it can compute packed micro-batches of the model in bfloat16."""
    instruction_set: str
    torch_version: str

    @classmethod
    def here(cls, device: str, settings: TrainingSettings) -> "WorkerDevice":
        """Describes a device of this process."""
        fast = settings.speed == "auto"
        # Inductor may choose kernels by timing them, and another choice adds in another order.
        may_compile = fast and not settings.exact_reduction and settings.model.architecture == "transformer"
        return cls(
            platform.node(),
            device_name(device),
            multiplies_bfloat16(device),
            compute_dtype(device) == torch.bfloat16,
            may_compile and compiles(device),
            fast and packs(device, settings.model),
            instruction_set(device),
            torch.__version__,
        )


class Negotiated(NamedTuple):
    """The settings that depend on the devices of all workers."""

    dtype: torch.dtype
    """The dtype of the matrix products."""
    compiled: bool
    """Whether layers are compiled. Compiled ones draw other dropout masks, so it is all workers or none."""
    packed: bool
    """Whether micro-batches are packed: at all workers or none, for the same reason."""
    devices: list[WorkerDevice]
    """The device of each rank."""

    @property
    def rounds_alike(self) -> bool:
        """Whether the same optimizer step gives the same bits at all ranks."""
        return len({(device.instruction_set, device.torch_version) for device in self.devices}) == 1


def packs(device: str, model: TransformerConfig) -> bool:
    """Whether micro-batches in bfloat16 can be packed: where `model.attention.packed_attention` computes the model."""
    if not device.startswith("cuda") or model.attention_dropout or model.architecture != "transformer":
        return False
    return has_kernels(torch.cuda.get_device_capability(device), model.d_k, model.d_v)


def negotiate(workers: Workers, settings: TrainingSettings, state: TrainingState, checkpoints: Path) -> Negotiated:
    """Settles how a run computes that begins or continues from `state`; every rank must call it.

    A `dtype` other than auto is followed. With auto, a run that continues keeps the dtype in its checkpoint, and a new
    one computes in bfloat16 if every device gains by that, otherwise in float32. Raises UserError at every rank if
    updates remain to be done in bfloat16 and a device does not multiply it natively; `checkpoints` is the folder that
    it names.
    """
    devices = workers.gathered(WorkerDevice.here(workers.device, settings))
    faster = "bfloat16" if all(device.gains_by_bfloat16 for device in devices) else "float32"
    dtype = (state.dtype or faster) if settings.dtype == "auto" else settings.dtype
    lacking = [device for device in devices if not device.multiplies_bfloat16]
    if settings.dtype == "auto" and dtype == "bfloat16" and lacking and state.update < settings.updates:
        raise UserError(
            f"this run began in bfloat16, which {_named(lacking)} cannot multiply natively; continue it on machines "
            f"that can, or move {checkpoints} elsewhere to start over in float32"
        )
    compiled = all(device.compiles for device in devices)
    packed = dtype == "bfloat16" and all(device.packs for device in devices)
    return Negotiated(getattr(torch, dtype), compiled, packed, devices)


def begin_segment(state: TrainingState, workers: Workers, negotiated: Negotiated, threads: int, captured: bool) -> None:
    """Continues the last segment of `state` if nothing has changed, or else begins one; every rank must call it.

    For a new segment each rank measures the rate of its GPU. That of a CPU depends on what else runs there.
    """
    names = [device.name for device in negotiated.devices]
    segment = Segment(
        devices=tuple(SegmentDevices(name, count, None) for name, count in Counter(names).items()),
        threads=threads,
        dtype=dtype_name(negotiated.dtype),
        torch_version=" and ".join(sorted({device.torch_version for device in negotiated.devices})),
        compiled=negotiated.compiled,
        packed=negotiated.packed,
        captured=captured,
    )
    if state.segments and segment.is_alike(state.segments[-1]):
        return
    if workers.device.startswith("cuda"):
        rates = list(zip(names, workers.gathered(matmul_flop_s(workers.device, negotiated.dtype)), strict=True))
        segment.devices = tuple(
            replace(same, matmul_flop_s=sum(rate for name, rate in rates if name == same.name) / same.count)
            for same in segment.devices
        )
    state.segments.append(segment)


def _named(devices: Iterable[WorkerDevice]) -> str:
    return " and ".join(dict.fromkeys(f"{device.host} ({device.name})" for device in devices))
