import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from model.architectures import make_decoder
from model.config import BEGIN_ID
from tests.model.test_transformer import SOURCE_BS, TINY
from tests.model.test_transformer import random_model as random_transformer
from tests.support.baselines import NAMES, random_model
from tests.support.batches import hidden_of

FREE_SIZES = {"d_k": 5, "d_v": 3}
MODELS = {
    "sinusoidal": lambda: random_transformer(replace(TINY, **FREE_SIZES)),
    "learned": lambda: random_transformer(replace(TINY, **FREE_SIZES, positions="learned")),
    "additive": lambda: random_transformer(replace(TINY, **FREE_SIZES, attention="additive")),
    "dot_product": lambda: random_transformer(replace(TINY, **FREE_SIZES, attention="dot_product")),
    "recurrent": lambda: random_model("recurrent", vocabulary_size=23),
    "convolutional": lambda: random_model("convolutional", vocabulary_size=23),
}


@pytest.mark.gpu
@pytest.mark.parametrize("pruned", [False, True], ids=["kept", "pruned"])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_cached_decoding_is_uncached(name: str, pruned: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps over hypotheses that branch, end, change in number and lose a sentence give forward's logits.

    This holds for a Transformer's cache that keeps every token and for one that is pruned at every position.
    """
    monkeypatch.setattr("model.decoder.FIRST_PRUNED_TOKENS", 0 if pruned else sys.maxsize)
    monkeypatch.setattr("model.decoder.PRUNING_GROWTH", 0)
    model: Any = MODELS[name]().eval().to(device)
    torch.manual_seed(3)
    source_BS, tokens_BWT = SOURCE_BS.to(device), torch.full((3, 1, 1), BEGIN_ID, device=device)
    decoder = make_decoder(model)
    cache = decoder.start(source_BS)
    for position, width in enumerate((1, 4, 3, 3, 5, 2)):
        stepped_BWD = decoder.step(tokens_BWT[:, :, -1], cache)
        assert cache.length == position + 1
        for row_S, tokens_WT, stepped_WD in zip(source_BS, tokens_BWT, stepped_BWD, strict=True):
            hidden_WD = hidden_of(model, row_S.expand(len(tokens_WT), -1), tokens_WT)[:, -1]
            torch.testing.assert_close(stepped_WD, hidden_WD, rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(decoder.logits(stepped_WD)[:, :23], model.logits(hidden_WD))
        if position == 2:
            kept = torch.tensor([2, 0], device=device)
            cache.keep(kept)
            source_BS, tokens_BWT = source_BS[kept], tokens_BWT[kept]
        parents_BW = torch.randint(tokens_BWT.shape[1], (len(source_BS), width)).to(device)
        cache.branch(parents_BW)
        grown_BWT = tokens_BWT.gather(1, parents_BW[:, :, None].expand(-1, -1, tokens_BWT.shape[2]))
        tokens_BWT = torch.cat((grown_BWT, torch.randint(4, 23, (len(source_BS), width, 1)).to(device)), dim=2)
    if name not in NAMES:
        assert (cache.bias_BWM.shape[2] < 1 + 1 + 4 + 3 + 3 + 5) == pruned
