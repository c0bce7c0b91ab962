from dataclasses import replace

import pytest
import torch

from model import cpu
from model.batch import Batch
from model.config import END_ID, PAD_ID, TransformerConfig
from model.cpu import pad_rows, padded_row_count
from model.decoder import IncrementalDecoder
from model.loss import smoothed_cross_entropy
from model.transformer import Transformer

TINY = TransformerConfig(30, n_layers=2, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, dropout=0.0)


def test_rows_are_filled_only_where_products_are_compiled() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [padded_row_count(n, cpu, torch.bfloat16) for n in (1, 64, 65)] == [64, 64, 128]
    assert padded_row_count(65, cpu, torch.float32) == padded_row_count(65, gpu, torch.bfloat16) == 65
    x_NX = torch.ones(2, 3)
    assert pad_rows(x_NX) is x_NX
    assert pad_rows(x_NX.bfloat16()).tolist() == [[1] * 3] * 2 + [[0] * 3] * 62
    assert pad_rows(torch.tensor([7, 8]), torch.bfloat16).tolist() == [7, 8] + [PAD_ID] * 62


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_filling_changes_neither_loss_nor_gradient(monkeypatch: pytest.MonkeyPatch, positions: str) -> None:
    torch.manual_seed(0)
    model = Transformer(replace(TINY, positions=positions))
    source_BS = torch.tensor([[5, 9, 7, END_ID], [11, END_ID, PAD_ID, PAD_ID], [8, 6, END_ID, PAD_ID]])
    target_BT = torch.tensor([[6, END_ID, PAD_ID], [7, 12, END_ID], [9, 9, END_ID]])
    found = []
    for multiple in (1, 64):
        monkeypatch.setattr(cpu, "ROWS_MULTIPLE", multiple)
        monkeypatch.setattr(
            cpu, "padded_row_count", lambda n, device, dtype: padded_row_count(n, device, torch.bfloat16)
        )
        model.zero_grad()
        batch = Batch.padded(source_BS, target_BT, torch.float32)
        hidden_ND = model(batch.source, batch.inputs)
        loss, nll = smoothed_cross_entropy(hidden_ND, model.embedding.weight, batch.targets_N, 0.1)
        loss.backward()
        with torch.no_grad():
            decoder = IncrementalDecoder(model.eval())
            step_31D = decoder.step(torch.tensor([[2], [2], [2]]), decoder.start(source_BS))
            step_3V = decoder.logits(step_31D[:, 0])[:, : TINY.vocabulary_size]
        gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        found.append([hidden_ND[: target_BT.numel()].detach(), loss.detach(), nll, step_3V, *gradients])
    assert len(found[0]) == 4 + len(list(model.parameters()))
    for plain, with_rows in zip(*found, strict=True):
        torch.testing.assert_close(with_rows, plain, rtol=1e-5, atol=1e-5)
