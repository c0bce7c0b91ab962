from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.peers import Marian, TorchTransformer
from benchmarks.synthetic import write_dataset
from benchmarks.training import Size
from benchmarks.training_loops import PlainLoop
from model.batch import Batch
from model.config import PAD_ID, OptimizerConfig, TransformerConfig
from model.training_step import TrainingStep, views
from model.transformer import Transformer
from pipeline.corpora.lengths import LENGTHS
from pipeline.export.huggingface import marian_weights
from tests.support.torch_reference import copy_layers

TINY = TransformerConfig(vocabulary_size=300, n_layers=2, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16, dropout=0.0)


@pytest.mark.parametrize("name", ["torch", "marian", "marian, learned positions"])
def test_peers_are_the_same_model(tmp_path: Path, name: str) -> None:
    if name != "torch":
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = replace(TINY, positions="learned", max_positions=100) if "learned" in name else TINY
    ours = Transformer(config)
    with torch.no_grad():
        for parameter in ours.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    dataset = write_dataset(tmp_path / "dataset", replace(LENGTHS["multi30k"], pairs=500), config.vocabulary_size)
    settings = Size(config, "multi30k", 1, 1, cpu_batch_tokens=600).settings(device="cpu")
    peer = PlainLoop(settings, dataset, TorchTransformer if name == "torch" else Marian, "float32")
    with torch.no_grad():
        if name == "torch":
            layers = peer.model.transformer
            peer.model.embedding.weight.copy_(ours.embedding.weight)
            copy_layers(ours, layers.encoder.layers, layers.decoder.layers)
        else:  # missing ones are tied, or biases of 0
            peer.model.marian.load_state_dict(marian_weights(ours), strict=False)
    source_BS, target_BT = peer.updates.split.batch(np.arange(40))
    step = TrainingStep(ours, OptimizerConfig(), torch.float32)
    step.accumulate(Batch.padded(source_BS, target_BT, torch.float32))
    n_tokens = int((target_BT != PAD_ID).sum())
    loss = peer.loss(source_BS, target_BT)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(step.losses[0] / n_tokens), abs=1e-5)
    names = [name for name, _ in ours.named_parameters()]
    gradient = views(step.gradient_P, ours)[names.index("encoder.0.feed_forward.w_1.weight")]
    layer = peer.model.transformer.encoder.layers[0] if name == "torch" else peer.model.marian.model.encoder.layers[0]
    theirs = (layer.linear1 if name == "torch" else layer.fc1).weight.grad
    assert float(theirs.norm()) == pytest.approx(float(gradient.norm() / n_tokens), rel=1e-3)
    assert peer.warm_up() == "float32"
