"""The peers compute our model, so that rates are comparable."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.peers import Marian, TorchTransformer
from benchmarks.synthetic import write_dataset
from benchmarks.training import Size
from benchmarks.training_loops import PlainLoop
from model.attention import SelfAttention
from model.batch import Batch
from model.config import PAD_ID, OptimizerConfig, TransformerConfig
from model.training_step import TrainingStep, views
from model.transformer import Transformer
from pipeline.corpora.lengths import LENGTHS
from pipeline.export.huggingface import marian_weights

TINY = TransformerConfig(vocabulary_size=300, n_layers=2, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16, dropout=0.0)


def _as_torch(ours: Transformer, peer: TorchTransformer) -> None:
    """Copies our weights into torch's module, whose attention biases are initialised to 0."""

    def attention(mine: Any, theirs: Any) -> None:
        weights = [mine.w_qkv.weight] if isinstance(mine, SelfAttention) else [mine.w_q.weight, mine.w_kv.weight]
        theirs.in_proj_weight.copy_(torch.cat(weights))
        theirs.out_proj.weight.copy_(mine.w_o.weight)

    def feed_forward(mine: Any, theirs: Any) -> None:
        theirs.linear1.load_state_dict(mine.w_1.state_dict())
        theirs.linear2.load_state_dict(mine.w_2.state_dict())

    peer.embedding.weight.copy_(ours.embedding.weight)
    for mine, theirs in zip(ours.encoder, peer.transformer.encoder.layers, strict=True):
        attention(mine.attention, theirs.self_attn)
        feed_forward(mine.feed_forward, theirs)
        theirs.norm1.load_state_dict(mine.attention_norm.state_dict())
        theirs.norm2.load_state_dict(mine.feed_forward_norm.state_dict())
    for mine, theirs in zip(ours.decoder, peer.transformer.decoder.layers, strict=True):
        attention(mine.self_attention, theirs.self_attn)
        attention(mine.cross_attention, theirs.multihead_attn)
        feed_forward(mine.feed_forward, theirs)
        theirs.norm1.load_state_dict(mine.self_attention_norm.state_dict())
        theirs.norm2.load_state_dict(mine.cross_attention_norm.state_dict())
        theirs.norm3.load_state_dict(mine.feed_forward_norm.state_dict())


def _as_marian(ours: Transformer, peer: Marian) -> None:
    """Copies our exported weights into MarianMT. Missing ones are tied, or biases of 0."""
    peer.marian.load_state_dict(marian_weights(ours), strict=False)


@pytest.mark.parametrize("name", ["torch", "marian", "marian, learned positions"])
def test_peers_are_the_same_model(tmp_path: Path, name: str) -> None:
    """With dropout 0, copied weights and perturbed norms, a peer's loss and gradient equal ours."""
    if name != "torch":
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = replace(TINY, positions="learned", max_positions=100) if "learned" in name else TINY
    ours = Transformer(config)
    with torch.no_grad():
        for parameter in ours.parameters():
            if parameter.dim() == 1:
                parameter += 0.2 * torch.randn_like(parameter)
    dataset = write_dataset(tmp_path / "dataset", replace(LENGTHS["multi30k"], pairs=500), config.vocabulary_size)
    settings = Size(config, "multi30k", 1, 1, cpu_batch_tokens=600).settings(device="cpu")
    peer = PlainLoop(settings, dataset, TorchTransformer if name == "torch" else Marian, "float32")
    with torch.no_grad():
        (_as_torch if name == "torch" else _as_marian)(ours, peer.model)  # type: ignore[arg-type]
    source_BS, target_BT = peer.updates.split.batch(np.arange(40))
    step = TrainingStep(ours, OptimizerConfig(), torch.float32)
    step.accumulate(Batch.padded(source_BS, target_BT, torch.float32), seed=0)
    n_tokens = int((target_BT != PAD_ID).sum())
    loss = peer.loss(source_BS, target_BT)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(step.losses[0] / n_tokens), abs=1e-5)
    names = [name for name, _ in ours.named_parameters()]
    gradient = views(step.gradient_P, ours)[names.index("encoder.0.feed_forward.w_1.weight")]
    layer = peer.model.transformer.encoder.layers[0] if name == "torch" else peer.model.marian.model.encoder.layers[0]  # type: ignore[union-attr]
    theirs = (layer.linear1 if name == "torch" else layer.fc1).weight.grad  # type: ignore[union-attr, operator, index]
    assert float(theirs.norm()) == pytest.approx(float(gradient.norm() / n_tokens), rel=1e-3)
