"""The stretches of a training: who computed each part of it, on what, in which dtype, and for how long.

A stretch begins when the loop is started on other devices than before, with other threads, or with another torch. The
checkpoints hold the list, so work that is done again after a kill counts once.
"""

from collections import Counter
from dataclasses import replace

from pipeline.hardware import dtype_name, matmul_flop_s
from pipeline.store.figures import Stretch, StretchDevices
from pipeline.training.agreement import Agreement
from pipeline.training.checkpoints import TrainingState
from pipeline.training.worker_group import WorkerGroup


def begin_stretch(
    state: TrainingState, group: WorkerGroup, agreement: Agreement, threads: int, packed: bool, captured: bool
) -> None:
    """Continues the last stretch of `state` if nothing has changed, or else begins one; every rank must call it.

    For a new stretch each rank measures the rate of its GPU. That of a CPU depends on what else runs there.
    """
    names = [device.name for device in agreement.devices]
    stretch = Stretch(
        devices=tuple(StretchDevices(name, count, None) for name, count in Counter(names).items()),
        threads=threads,
        dtype=dtype_name(agreement.dtype),
        torch_version=" and ".join(sorted({device.torch_version for device in agreement.devices})),
        compiled=agreement.compiled,
        packed=packed,
        captured=captured,
    )
    if state.stretches and stretch.is_alike(state.stretches[-1]):
        return
    if group.device.startswith("cuda"):
        rates = list(zip(names, group.gathered(matmul_flop_s(group.device, agreement.dtype)), strict=True))
        stretch.devices = tuple(
            replace(same, matmul_flop_s=sum(rate for name, rate in rates if name == same.name) / same.count)
            for same in stretch.devices
        )
    state.stretches.append(stretch)
