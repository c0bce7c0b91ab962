"""The workers' devices, the dtype and form that they negotiate, and the segments of a run.

Dtype and form affect results, so all workers share them. A resumed run keeps its original dtype, which the checkpoints
record.

A new segment begins when the loop restarts with other devices, thread counts or torch versions. Segments are stored in
the checkpoints, so work repeated after an interruption counts once.
"""

import platform
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from model.config import TransformerConfig
from model.kernels.attention import WIDEST
from pipeline.errors import UserError
from pipeline.hardware import (
    attention_kernels_work,
    compiles,
    compute_dtype,
    device_name,
    dtype_name,
    instruction_set,
    matmul_flop_s,
    multiplies_bfloat16,
)
from pipeline.records import Segment, SegmentDevices
from pipeline.settings import TrainingSettings
from pipeline.training.checkpoints import TrainingState
from pipeline.training.updates import Form
from pipeline.training.workers import Workers


class WorkerDevice(NamedTuple):
    """A worker's device, as other workers need to know it."""

    host: str
    name: str
    """Name of the GPU or CPU."""
    multiplies_bfloat16: bool
    """Whether it multiplies bfloat16 natively."""
    prefers_bfloat16: bool
    """Whether `dtype` auto selects bfloat16 on it."""
    compiles: bool
    can_pack: bool
    """Whether it supports packed bfloat16 batches of the model."""
    instruction_set: str
    torch_version: str

    @classmethod
    def here(cls, device: str, settings: TrainingSettings) -> "WorkerDevice":
        """Describes a device of this process."""
        fast = settings.speed == "auto"
        # Inductor may pick kernels by timing, and another kernel sums in another order.
        may_compile = fast and not settings.exact_reduction and has_fast_form(settings.model)
        return cls(
            platform.node(),
            device_name(device),
            multiplies_bfloat16(device),
            compute_dtype(device) == torch.bfloat16,
            may_compile and compiles(device),
            fast and settings.dtype != "float32" and can_pack(device, settings.model),
            instruction_set(device),
            torch.__version__,
        )


class Negotiated(NamedTuple):
    """The settings negotiated among the devices of all workers."""

    dtype: torch.dtype
    """The dtype of matrix products."""
    compiled: bool
    """Whether layers are compiled: on all workers or none, since they round differently."""
    form: Form
    """The layout of batches, the same on all workers."""
    devices: list[WorkerDevice]
    """Devices by rank."""

    @property
    def rounds_identically(self) -> bool:
        """Whether the same optimizer step gives identical bits at all ranks."""
        return len({(device.instruction_set, device.torch_version) for device in self.devices}) == 1


def has_fast_form(model: TransformerConfig) -> bool:
    """Whether a model may be compiled and packed: the Transformer, but for §3.2.1's other attention functions."""
    return model.architecture == "transformer" and model.attention == "scaled_dot_product"


def can_pack(device: str, model: TransformerConfig) -> bool:
    """Whether packed batches of the model are possible on this device, in bfloat16 (`model.kernels.attention`)."""
    is_defined = has_fast_form(model) and not model.attention_dropout and max(model.d_k, model.d_v) <= WIDEST
    on_gpu = device.startswith("cuda") and multiplies_bfloat16(device)
    return is_defined and on_gpu and attention_kernels_work(device, model.n_heads, model.d_k, model.d_v)


def negotiate(workers: Workers, settings: TrainingSettings, state: TrainingState, checkpoints: Path) -> Negotiated:
    """Negotiates how to compute a run that starts or resumes from `state`; a collective.

    An explicit `dtype` is used as is. With auto, a resumed run keeps its checkpoint's dtype, and a new one uses
    bfloat16 if every device gains by that, else float32. Raises UserError at every rank if updates remain to be done in
    bfloat16 and a device does not support it natively; the message names the folder `checkpoints`.
    """
    devices = workers.gather_objects(WorkerDevice.here(workers.device, settings))
    faster = "bfloat16" if all(device.prefers_bfloat16 for device in devices) else "float32"
    dtype = (state.dtype or faster) if settings.dtype == "auto" else settings.dtype
    lacking = [device for device in devices if not device.multiplies_bfloat16]
    if settings.dtype == "auto" and dtype == "bfloat16" and lacking and state.update < settings.updates:
        named = " and ".join(dict.fromkeys(f"{device.host} ({device.name})" for device in lacking))
        raise UserError(
            f"this run began in bfloat16, which {named} cannot multiply natively; continue it on machines "
            f"that can, or move {checkpoints} elsewhere to start over in float32"
        )
    compiled = all(device.compiles for device in devices)
    form: Form = "blocks" if workers.device == "cpu" and settings.model.architecture == "transformer" else "padded"
    if dtype == "bfloat16" and all(device.can_pack for device in devices):
        form = "packed"
    return Negotiated(getattr(torch, dtype), compiled, form, devices)


def begin_segment(state: TrainingState, workers: Workers, negotiated: Negotiated, threads: int, captured: bool) -> None:
    """Continues the last segment of `state` if nothing has changed, else begins a new one; a collective.

    For a new segment each rank measures its GPU's matmul rate. A CPU's would depend on other load.
    """
    names = [device.name for device in negotiated.devices]
    segment = Segment(
        devices=tuple(SegmentDevices(name, count, None) for name, count in Counter(names).items()),
        threads=threads,
        dtype=dtype_name(negotiated.dtype),
        torch_version=" and ".join(sorted({device.torch_version for device in negotiated.devices})),
        compiled=negotiated.compiled,
        packed=negotiated.form == "packed",
        captured=captured,
    )
    if state.segments and segment.is_alike(state.segments[-1]):
        return
    if workers.device.startswith("cuda"):
        rates = list(zip(names, workers.gather_objects(matmul_flop_s(workers.device, negotiated.dtype)), strict=True))
        segment.devices = tuple(
            replace(same, matmul_flop_s=sum(rate for name, rate in rates if name == same.name) / same.count)
            for same in segment.devices
        )
    state.segments.append(segment)
