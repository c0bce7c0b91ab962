"""Recording attention weights changes nothing. (`test_translated` has what is recorded.)"""

import torch

from model.batch import shift_right
from model.config import END_ID, PAD_ID, TransformerConfig
from model.transformer import Transformer
from pipeline.attention.recording import KINDS, attentions, recording
from tests.support.batches import hidden_of

CONFIG = TransformerConfig(23, n_layers=2, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=5, dropout=0.0)
SOURCE_BS = torch.tensor([[5, 9, 7, 4, END_ID], [11, 6, END_ID, PAD_ID, PAD_ID]])
INPUTS_BT = shift_right(torch.tensor([[6, 8, END_ID], [7, 12, 4]]))


def test_recording_changes_no_bit_and_leaves_nothing_behind() -> None:
    torch.manual_seed(0)
    model = Transformer(CONFIG).eval()
    with torch.no_grad():
        plain = hidden_of(model, SOURCE_BS, INPUTS_BT)
        with recording(model):
            assert torch.equal(hidden_of(model, SOURCE_BS, INPUTS_BT), plain)
        assert torch.equal(hidden_of(model, SOURCE_BS, INPUTS_BT), plain)
    assert all(one.function.on_weights is None for kind in KINDS for one in attentions(model, kind))
