from dataclasses import replace
from functools import partialmethod

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model.batch import Batch, PackedSize
from model.config import PAD_ID, OptimizerConfig, TransformerConfig
from model.dropout import pair_keys
from model.training_step import TrainingStep
from model.transformer import Transformer
from tests.model.test_transformer import random_model
from tests.support.batches import random_sentences

TINY = TransformerConfig(40, n_layers=2, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=4, dropout=0.0)
SIZE = PackedSize(n_rows=64, n_sentences=11, n_positions=11)


def pairs(n: int, seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    lengths = ([longest, *torch.randint(2, 5, (n - 1,)).tolist()] for longest in (11, 4))
    source_BS, target_BT = (random_sentences(each, 40) for each in lengths)
    return source_BS, target_BT


def test_pairs_that_do_not_fit_are_refused() -> None:
    source_BS, target_BT = torch.full((12, 3), 5), torch.full((12, 2), 5)
    assert Batch.packed(source_BS, target_BT, PackedSize.of(36, 12, 3)).targets_N.count_nonzero() == 24
    for size in (PackedSize.of(36, 11, 3), PackedSize(35, 20, 3), PackedSize.of(36, 12, 2)):
        with pytest.raises(ValueError, match="12 pairs of at most 3 tokens do not fit"):
            Batch.packed(source_BS, target_BT, size)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"d_k": 3, "d_v": 7},
        {"d_k": 9, "d_v": 4},
        {"attention_window": 3},
        {"attention_window": 4},
        {"positions": "learned", "max_positions": 11},
    ],
    ids=str,
)
def test_packed_is_padded_sentence_by_sentence(changes: dict[str, object]) -> None:
    model = random_model(replace(TINY, **changes))
    sides, keys_B, results = pairs(9, seed=1), pair_keys(1, 2, torch.arange(9)), []
    for batch in (Batch.padded(*sides, torch.float64).keyed(keys_B), Batch.packed(*sides, SIZE).keyed(keys_B)):
        model.zero_grad()
        hidden_ND = model(batch.source, batch.inputs)
        assert hidden_ND.isfinite().all()
        log_p_NV = model.logits(hidden_ND).log_softmax(dim=-1)
        real_N = batch.targets_N != PAD_ID
        loss = -log_p_NV[real_N].gather(1, batch.targets_N[real_N, None]).sum()
        loss.backward()
        results.append([hidden_ND[real_N], loss, *(parameter.grad for parameter in model.parameters())])
    for padded, packed in zip(*results, strict=True):
        torch.testing.assert_close(packed, padded, rtol=1e-10, atol=1e-10)


class Shapes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[object, ...]]] = []

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in (result if isinstance(result, tuple | list) else [result]) if isinstance(x, Tensor)]
        self.seen.append((str(func), tuple((tuple(x.shape), x.dtype) for x in tensors)))
        return result


def addresses(step: TrainingStep) -> list[int]:
    scalars = [step._rate, step._n_tokens, step._found_inf]
    tensors = [*step.model.parameters(), *step.master.parameters(), step.sums, step.gradient_P, *scalars]
    return [tensor.data_ptr() for tensor in tensors]


def test_batches_of_any_sentences_have_the_same_shapes_and_addresses() -> None:
    torch.manual_seed(0)
    step = TrainingStep(Transformer(replace(TINY, dropout=0.1)), OptimizerConfig(), torch.bfloat16, packed=True)
    runs, places = [], []
    for update, n_pairs in enumerate((9, 4), start=1):
        batch = Batch.packed(*pairs(n_pairs, seed=update), SIZE).keyed(pair_keys(0, update, torch.arange(n_pairs)))
        with Shapes() as shapes:
            step.accumulate(batch)
            results = step.apply(update, n_tokens=20)
        assert results.isfinite().all()
        runs.append(shapes.seen)
        places.append(addresses(step))
    assert runs[0] == runs[1]
    assert places[0] == places[1]


def test_a_layer_of_each_kind_compiles_as_one_graph_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers per stack, four batches, and validation on a longer sentence need two graphs together.

    Dropout's masks are those of the layers that are not compiled.

    The graphs are traced and differentiated, but no kernels are generated from them, which takes most of the time.
    """
    import torch._dynamo

    compiles = partialmethod(torch.nn.Module.compile, backend="aot_eager")
    monkeypatch.setattr(torch.nn.Module, "compile", compiles)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    long_BL = torch.full((1, 300), 5)
    plain, compiled = (
        TrainingStep(
            Transformer(replace(TINY, dropout=0.2)), OptimizerConfig(), torch.float32, compiled=compiles, packed=True
        )
        for compiles in (False, True)
    )
    compiled.master.load_state_dict(plain.master.state_dict())
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed, n_pairs in enumerate((9, 4, 7, 1)):
            keys_B = pair_keys(0, seed, torch.arange(n_pairs))
            batch = Batch.packed(*pairs(n_pairs, seed=seed), SIZE).keyed(keys_B)
            for step in (plain, compiled):
                step.accumulate(batch)
            torch.testing.assert_close(compiled.losses, plain.losses, rtol=1e-5, atol=0)
            torch.testing.assert_close(compiled.gradient_P, plain.gradient_P, rtol=1e-4, atol=1e-4)
            with torch.no_grad(), compiled.uncompiled():
                compiled.loss(Batch.padded(long_BL, long_BL, torch.float32).keyed(keys_B[:1]))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
