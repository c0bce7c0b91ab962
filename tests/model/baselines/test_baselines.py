import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from model.architectures import ARCHITECTURES, make_model
from model.baselines.convolutional import EMBEDDING_STD, Convolutional
from model.batch import Batch, PackedSize, Rows
from model.config import BASE, BEGIN_ID, END_ID, PAD_ID, OptimizerConfig
from model.dropout import pair_keys
from model.flops import count_parameters
from model.search import beam_search
from model.training_step import TrainingStep
from tests.model.baselines import plain
from tests.support.baselines import NAMES, config_of, random_model
from tests.support.batches import hidden_of

SOURCES = [[4, 5, 6, 7, END_ID], [8, END_ID], [9, 10, 4, END_ID]]
INPUTS = [[BEGIN_ID, 5, 6], [BEGIN_ID, 7, 8, 9, 10, 4], [BEGIN_ID]]


def padded(sentences: list[list[int]], more: int = 0) -> Tensor:
    return F.pad(pad_sequence([torch.tensor(each) for each in sentences], batch_first=True), (0, more), value=PAD_ID)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_equals_the_papers_equations(name: str, device: str) -> None:
    model = random_model(name)
    weights = dict(model.state_dict())
    on_device = deepcopy(model).to(device)
    hidden_BTD = hidden_of(on_device, padded(SOURCES, 4).to(device), padded(INPUTS, 2).to(device)).cpu()
    for source, inputs, hidden_TD in zip(SOURCES, INPUTS, hidden_BTD, strict=True):
        expected_TD = getattr(plain, name)(weights, model.config, source, inputs)
        torch.testing.assert_close(hidden_TD[: len(inputs)], expected_TD, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_gradient(name: str) -> None:
    step = TrainingStep(random_model(name, scale=1.0).float(), OptimizerConfig(), torch.float32)
    batch = Batch.padded(padded(SOURCES), padded([[*each[1:], END_ID] for each in INPUTS]), torch.float32)
    step.accumulate(batch.keyed(torch.arange(3)))
    for parameter, gradient in zip(step.master.named_parameters(), step._gradients, strict=True):
        used = gradient[:6] if parameter[0].endswith("positions.weight") else gradient
        used = used[4:] if parameter[0] == "embedding.weight" else used
        assert used.abs().sum() > 0, parameter[0]
    first, second = (make_model(config_of(name)) for _ in range(2) if torch.manual_seed(3))
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), second.parameters(), strict=True))


@torch.no_grad()
def test_a_new_convolutional_model_keeps_the_variance_of_activations() -> None:
    torch.manual_seed(0)
    model = Convolutional(config_of("convolutional", vocabulary_size=500, n_layers=6, d_model=64, d_ff=96, dropout=0.2))
    squares: dict[str, float] = {}
    for name, module in model.named_modules():
        if name.startswith(("encoder", "decoder")) and name.count(".") <= 1:
            module.register_forward_hook(lambda _m, _x, y, name=name: squares.update({name: y.square().mean()}))
    tokens_BL = torch.randint(4, 500, (40, 30))
    hidden_BTD = hidden_of(model.train(), tokens_BL, tokens_BL, pair_keys(1, 1, torch.arange(40)))
    embedded = 2 * EMBEDDING_STD**2
    for name in ("encoder_input", "encoder_output", "decoder_input", "decoder.0", "decoder.5", "decoder_output"):
        assert 0.5 < squares[name] / embedded < 2, (name, squares[name] / embedded)
    assert 0.5 < hidden_BTD.square().mean() / embedded * 0.8 < 2


def test_the_encoder_gets_the_mean_gradient_of_the_attentions() -> None:
    """The gradient through the keys is divided by twice their number; the embeddings' is not."""
    model, factors = random_model("convolutional"), []
    for layers in (model.decoder, model.decoder[:2]):
        model.decoder = nn.ModuleList(layers)
        source = model.encode(Rows.padded(padded(SOURCES), torch.float64))
        for output in (source.keys_BSK, source.values_BSV):
            model.zero_grad()
            output.sum().backward(retain_graph=True)
            factors.append(float(model.encoder_output.bias.grad.sum()) / (5 + 2 + 4 + 4) / 6)
    # All 15 positions of the padded batch count in a sum.
    assert factors == pytest.approx([1 / 6, math.sqrt(0.5) / 6, 1 / 4, math.sqrt(0.5) / 4])


def test_packed_rows_are_refused() -> None:
    batch = Batch.packed(padded(SOURCES), padded(SOURCES), PackedSize.of(40, 3, 8))
    for name in NAMES:
        with pytest.raises(ValueError, match=r"^only the Transformer supports packed batches; .*padded$"):
            random_model(name)(batch.source, batch.inputs)


def test_positions_end() -> None:
    model = random_model("convolutional", max_positions=6)
    with pytest.raises(ValueError, match="a sentence has 7 tokens, but the learned positions end at 6"):
        hidden_of(model, padded(SOURCES, more=2), padded(INPUTS))
    assert all(len(best.tokens) < 6 for (best,) in beam_search(model, padded(SOURCES)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "quantum"}, "architecture is 'quantum'"),
        ({"architecture": "convolutional"}, "positions is 'sinusoidal'; a convolutional model needs 'learned'"),
        ({"architecture": "recurrent", "positions": "learned"}, "positions is 'learned', but a recurrent model has"),
        ({"architecture": "recurrent", "n_layers": 1}, "n_layers is 1; a recurrent model"),
        ({"architecture": "recurrent", "d_ff": 9}, "d_ff is 9; .* must be even"),
        ({"architecture": "recurrent", "attention_window": 3}, "a recurrent model has no attention_window"),
        ({"architecture": "recurrent", "attention": "additive"}, "a recurrent model has no attention 'additive'"),
        ({"attention": "cosine"}, "attention is 'cosine'; it must be one of 'scaled_dot_product', 'dot_product', 'add"),
        ({"attention": "additive", "attention_window": 3}, "attention_window needs attention 'scaled_dot_product'"),
    ],
)
def test_what_an_architecture_lacks_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(BASE, **changes)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_are_counted_without_memory(name: str) -> None:
    config, memory = config_of(name), psutil.Process().memory_info
    assert count_parameters(config) == sum(parameter.numel() for parameter in make_model(config).parameters())
    before_bytes = memory().rss
    assert count_parameters(replace(config, d_model=1024, d_ff=4096)) > 5e7
    assert memory().rss - before_bytes < 5e7
