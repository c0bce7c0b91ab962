"""Compiles two layers of base for an emulated H100, and prints what their kernels are, as JSON.

    LD_PRELOAD=guard.so python -m tests.support.fake_cuda.compiled

Inductor generates the code of a GPU. FakeTensors go through the graph that it was generated from.
"""

import json
import re
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime import triton_helpers
from torch._subclasses.fake_tensor import FakeTensorMode

from model.batch import Batch, PackedSize
from model.config import OptimizerConfig
from model.dropout import pair_keys
from model.training_step import TrainingStep
from model.transformer import Transformer
from tests.support.fake_cuda.operators import CONFIG, replace_parameters
from tests.support.ptx import needs, use_h100

H100 = SimpleNamespace(
    name="H100", gcnArchName="", major=9, minor=0, multi_processor_count=132, warp_size=32, total_memory=80 << 30,
    regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
    shared_memory_per_block=48 << 10, shared_memory_per_block_optin=227 << 10,
)  # fmt: skip
ROWS = 25_088  # an update of the paper's size in one pass


def facts(code: str) -> dict[str, Any]:
    """Returns what a graph launches, its buffers of all rows, and registers and bytes spilled of its Triton kernels."""
    _, call = code.split("def call(self, args)")
    kernels = {}
    for name, source in re.findall(r"async_compile\.triton\('(\w+)', '''(.*?)'''", code, re.DOTALL):
        kernel = getattr(PyCodeCache.load(source), name)
        kernels[name] = [needs(kernel._precompile_config(size).kernel)[:2] for size in kernel.configs]
    launches = re.findall(r"(?:extern_kernels|ops\.\w+|aten)\.(\w+)[.\w]*\(|(triton)_\w+\.run\(", call)
    buffers = re.findall(rf"empty_strided_cuda\(\({ROWS}, ([\d, ]+)\), .*, torch\.(\w+)\)", call)
    return {"launches": " ".join(map("".join, launches)), "buffers": buffers, "kernels": kernels}


def main() -> None:
    FakeTensorMode.avoid_device_init = property(lambda self: True)  # type: ignore[assignment]
    constants: dict[str, Any] = {"is_available": True, "device_count": 1, "current_device": 0, "_lazy_init": None}
    constants |= {"get_device_properties": H100, "get_device_capability": (9, 0)}
    for name, value in constants.items():
        setattr(torch.cuda, name, lambda *device, value=value: value)
        setattr(CudaInterface, name, staticmethod(getattr(torch.cuda, name)))
    torch.cuda.get_rng_state, torch.cuda.set_rng_state = torch.get_rng_state, torch.set_rng_state  # type: ignore[assignment]
    torch.cuda.device.__enter__ = lambda self: None
    torch.cuda.device.__exit__ = lambda self, *error: None
    use_h100()
    triton_helpers.set_driver_to_gpu = lambda: None
    nn.Module._apply = replace_parameters
    config.force_disable_caches, config.use_static_triton_launcher = True, False
    code: list[str] = []

    def compile_to_module(graph: GraphLowering) -> Any:
        code.append(graph.codegen()[0].value)
        return SimpleNamespace(call=lambda arguments: torch.fx.Interpreter(graph.module).run(*arguments))

    GraphLowering.compile_to_module = compile_to_module  # type: ignore[assignment]
    # To fold constants, which computes with them.
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", lambda size, dtype=None, **_: torch.empty(size, dtype=dtype), "CUDA")
    size = PackedSize.of(most_tokens=ROWS, most_pairs=1000, longest=150)
    tokens_BL = torch.randint(4, 100, (100, 30))
    batch = Batch.packed(tokens_BL, tokens_BL, size).keyed(pair_keys(0, 1, torch.arange(100)))
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cuda:0"):
            master = Transformer(CONFIG)
        step = TrainingStep(master, OptimizerConfig(), torch.bfloat16, compiled=True, packed=True)
        step.accumulate(batch.map(lambda tensor: torch.zeros_like(tensor, device="cuda:0")))
    graphs = ("encoder forward", "decoder forward", "decoder backward", "encoder backward")
    print(json.dumps({name: facts(text) for name, text in zip(graphs, code, strict=True)}))


if __name__ == "__main__":
    main()
