"""Runs the work of two layers of base on an emulated GPU, and prints the operators that each part launches, as JSON.

    LD_PRELOAD=guard.so python -m tests.support.fake_cuda.operators

FakeTensors raise errors for operators between two devices, and for operators whose result the host must wait for.
"""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from model.batch import Batch, PackedSize
from model.config import OptimizerConfig, TransformerConfig
from model.decoder import IncrementalDecoder
from model.dropout import pair_keys
from model.loss import smoothed_cross_entropy
from model.training_step import TrainingStep
from model.transformer import Transformer

NO_KERNEL = frozenset(
    """
    alias as_strided detach device empty empty_like empty_strided expand lift_fresh new_empty new_empty_strided permute
    promote_types reshape select slice split split_with_sizes squeeze t transpose unflatten unsqueeze view _unsafe_view
    _reshape_alias
    """.split()  # noqa: SIM905  # a list of them would take 25 lines
)
"""Operators that only look at memory in another way, or allocate it."""
CONFIG = TransformerConfig(n_layers=2)
WRITES_ONLY = ("zero_", "fill_", "zeros_like")
ROWS = 3_200
"""Rows of one side of a packed batch. The look-up of both sides has twice as many."""


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.weight_bytes = 0
        """Bytes of weight-sized tensors read and written outside of products and look-ups."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        result = func(*args, **(kwargs or {}))
        if name not in NO_KERNEL:
            self.counts[name] += 1
            read = [] if name in WRITES_ONLY else [*args[name == "copy_" :], *(kwargs or {}).values()]
            if name not in ("mm", "addmm", "embedding"):
                self.weight_bytes += _bytes(read) + _bytes(args[:4] if name == "_fused_adam_" else result)
        inputs = [x for x in args if isinstance(x, Tensor) and x.device.type == "cuda"]
        if inputs and isinstance(result, Tensor) and result.device.type == "cpu" and name not in NO_KERNEL:
            raise AssertionError(f"{name} copies to the host")
        return result


def _bytes(tree: Any) -> int:
    """Sums the tensors that are as large as weights, but have no dimension of rows."""
    tensors = [x for x in tree_leaves(tree) if isinstance(x, Tensor) and not {ROWS, 2 * ROWS} & {*x.shape}]
    return sum(x.nbytes for x in tensors) if sum(x.numel() for x in tensors) >= 1 << 20 else 0


def replace_parameters(module: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Replaces `nn.Module._apply`, which cannot swap the contents of FakeTensors."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(change(parameter.detach()))
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = change(buffer)
    return module


@contextmanager
def counted(into: dict[str, dict[str, int]], name: str) -> Any:
    with Operators() as operators:
        yield
    into[name] = dict(operators.counts)
    into["weight bytes"] = {**into.get("weight bytes", {}), name: operators.weight_bytes}


def main() -> None:
    nn.Module._apply = replace_parameters
    # torch has no meta kernel for a tensor rate. This operator changes its arguments and returns nothing.
    library = torch.library.Library("aten", "IMPL")
    library.impl("_fused_adam_.tensor_lr", lambda *args, **options: None, "Meta")
    torch.cuda.default_generators = (torch.default_generator,)
    size = PackedSize.of(most_tokens=3200, most_pairs=300, longest=150)
    assert size.n_rows == ROWS
    source_BS, target_BT = torch.randint(4, 100, (100, 30)), torch.randint(4, 100, (100, 31))
    counts: dict[str, dict[str, int]] = {}
    for _ in range(2):
        with counted(counts, "reading"):
            packed = Batch.packed(source_BS, target_BT, size).keyed(pair_keys(0, 1, torch.arange(len(source_BS))))
    padded = Batch.padded(source_BS, target_BT, torch.bfloat16)

    def on_device(tensor: Tensor) -> Tensor:
        return torch.zeros_like(tensor, device="cuda:0")

    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cuda:0"):
            master = Transformer(CONFIG)
        step = TrainingStep(master, OptimizerConfig(), torch.bfloat16, packed=True)
        for _ in range(2):  # the second time, every table and state exists
            batch = packed.map(on_device)
            with counted(counts, "pass"):
                step.accumulate(batch)
            with counted(counts, "update"):
                step.apply(1, 3000)
        torch.use_deterministic_algorithms(True)
        with counted(counts, "exact pass"):
            step.accumulate(batch)
        torch.use_deterministic_algorithms(False)
        step.model.eval()
        batch = padded.map(on_device)
        with torch.no_grad():
            with counted(counts, "validation"):
                hidden_ND = step.model(batch.source, batch.inputs)
                smoothed_cross_entropy(hidden_ND, step.model.embedding.weight, batch.targets_N, 0.1)
            decoder = IncrementalDecoder(step.model)
            cache = decoder.start(on_device(source_BS))
            tokens_BW = torch.zeros(100, 4, dtype=torch.int64, device="cuda:0")
            decoder.step(tokens_BW[:, :1], cache)
            cache.branch(tokens_BW)
            with counted(counts, "search position"):
                decoder.logits(decoder.step(tokens_BW, cache).flatten(0, 1))
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
