"""The recurrent and the convolutional model: their papers' equations, invariances, and learning."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.flop_counter import FlopCounterMode

from model.architectures import ARCHITECTURES, make_decoder, make_model
from model.baselines.convolutional import EMBEDDING_STD, Convolutional
from model.batch import Batch, PackedSize, Rows
from model.config import BASE, BEGIN_ID, END_ID, PAD_ID, OptimizerConfig
from model.flops import count_parameters, forward_flop, training_flop
from model.loss import perplexity_of
from model.search import beam_search
from model.training_step import TrainingStep
from tests.model.baselines import plain
from tests.model.test_search import assert_same, plain_search
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


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_what_must_not_matter_changes_no_hidden_state(name: str, device: str) -> None:
    """More padding, neighbours and later targets change no state; earlier targets and the source do."""
    model, source_BS, inputs_BT = random_model(name).to(device), padded(SOURCES).to(device), padded(INPUTS).to(device)
    hidden_BTD = hidden_of(model, source_BS, inputs_BT)
    alone_BTD = hidden_of(model, padded(SOURCES[:1], more=4).to(device), padded(INPUTS[:1], more=2).to(device))
    torch.testing.assert_close(alone_BTD[0, :3], hidden_BTD[0, :3], rtol=1e-10, atol=1e-10)
    inputs_BT[1, 3] = 5
    changed_T = (hidden_of(model, source_BS, inputs_BT) - hidden_BTD)[1].abs().amax(dim=1)
    assert (changed_T[:3] < 1e-12).all()
    assert (changed_T[3:] > 1e-6).all()
    for position in range(len(SOURCES[0])):
        other_BS = source_BS.clone()
        other_BS[0, position] = 10
        changed_BT = (hidden_of(model, other_BS, inputs_BT) - hidden_of(model, source_BS, inputs_BT)).abs().amax(dim=2)
        assert (changed_BT[0, :3] > 1e-9).all()
        assert (changed_BT[1:] < 1e-12).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_cached_decoding_is_uncached_decoding(name: str, device: str) -> None:
    """Hypotheses that branch, and sentences that leave the batch, have the logits of their full prefixes."""
    model, sources = random_model(name).to(device), padded(SOURCES).to(device)
    decoder = make_decoder(model)
    cache, prefixes_BWT = decoder.start(sources), torch.full((3, 1, 1), BEGIN_ID, device=device)
    generator = torch.Generator().manual_seed(0)
    kept = torch.tensor([0, 1, 2], device=device)
    for position in range(6):
        hidden_BWD = decoder.step(prefixes_BWT[:, :, -1], cache)
        expected_BWD = torch.stack(
            [
                hidden_of(model, sources[kept], prefixes_BWT[:, w])[:, -1]
                for w in range(prefixes_BWT.shape[1])
            ],
            dim=1,
        )  # fmt: skip
        torch.testing.assert_close(hidden_BWD, expected_BWD, rtol=1e-10, atol=1e-10)
        logits_NV = decoder.logits(hidden_BWD.flatten(0, 1))
        torch.testing.assert_close(logits_NV[:, :11], model.logits(expected_BWD.flatten(0, 1)))
        assert cache.length == position + 1
        if position == 3:
            order = torch.tensor([2, 1], device=device)
            cache.keep(order)
            kept, prefixes_BWT = kept[order], prefixes_BWT[order]
        shape = len(kept), 2 + position % 3
        parents_BW = torch.randint(prefixes_BWT.shape[1], shape, generator=generator).to(device)
        tokens_BW = torch.randint(4, 11, shape, generator=generator).to(device)
        cache.branch(parents_BW)
        grown_BWT = prefixes_BWT.gather(1, parents_BW[:, :, None].expand(-1, -1, prefixes_BWT.shape[2]))
        prefixes_BWT = torch.cat((grown_BWT, tokens_BW[:, :, None]), dim=2)


@pytest.mark.parametrize("name", NAMES)
def test_batched_search_is_plain_search(name: str) -> None:
    model: Any = random_model(name, scale=3.0)
    for source, found in zip(SOURCES, beam_search(model, padded(SOURCES), max_extra_tokens=4, n_best=3), strict=True):
        assert_same(found, plain_search(model, source, 4, 0.6, 4, 3))


@pytest.mark.parametrize("name", NAMES)
def test_learns_to_copy(name: str) -> None:
    """In 200 updates, to a perplexity of 1.02 on unseen sequences; search then copies them."""
    torch.manual_seed(0)
    config = config_of(name, vocabulary_size=8, n_layers=2, d_model=32, d_ff=64, dropout=0.0)
    optimizer = OptimizerConfig(warmup_steps=40, learning_rate_scale=0.4, label_smoothing=0.0)
    step = TrainingStep(make_model(config), optimizer, torch.float32)
    generator = torch.Generator().manual_seed(1)

    def digits(n: int) -> Tensor:
        lengths_B = torch.randint(1, 5, (n,), generator=generator)
        return padded([[*torch.randint(4, 8, (int(k),), generator=generator).tolist(), END_ID] for k in lengths_B])

    for update in range(1, 201):
        tokens_BL = digits(64)
        step.accumulate(Batch.padded(tokens_BL, tokens_BL, torch.float32), seed=update)
        step.apply(update, int((tokens_BL != PAD_ID).sum()))
    tokens_BL = digits(200)
    with torch.no_grad():
        step.model.eval()
        _, nll = step.loss(Batch.padded(tokens_BL, tokens_BL, torch.float32))
    assert perplexity_of(float(nll) / int((tokens_BL != PAD_ID).sum())) < 1.02
    found = beam_search(step.model, tokens_BL)
    copied = [
        best.tokens == [token for token in row if token > END_ID]
        for (best,), row in zip(found, tokens_BL.tolist(), strict=True)
    ]
    assert sum(copied) >= 195


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_gradient(name: str) -> None:
    step = TrainingStep(random_model(name, scale=1.0).float(), OptimizerConfig(), torch.float32)
    step.accumulate(Batch.padded(padded(SOURCES), padded([[*each[1:], END_ID] for each in INPUTS]), torch.float32), 1)
    for parameter, gradient in zip(step.master.named_parameters(), step._gradients, strict=True):
        used = gradient[:6] if parameter[0].endswith("positions.weight") else gradient
        used = used[4:] if parameter[0] == "embedding.weight" else used
        assert used.abs().sum() > 0, parameter[0]
    first, second = (make_model(config_of(name)) for _ in range(2) if torch.manual_seed(3))
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n", "source_length", "target_length"), [(1, 7, 4), (5, 3, 9)])
def test_flop_equal_torchs_count(name: str, n: int, source_length: int, target_length: int, monkeypatch: Any) -> None:
    """Forward only, and with backward. LSTMs, whose kernels torch does not count, run as products in a loop."""
    monkeypatch.setattr(nn.LSTM, "forward", looped)
    config = config_of(name)
    step = TrainingStep(make_model(config), OptimizerConfig(), torch.float32)
    source_BS, target_BT = torch.full((n, source_length), 7), torch.full((n, target_length), 8)
    lengths = [source_length] * n, [target_length] * n
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        step.model.logits(hidden_of(step.model, source_BS, target_BT))
    assert forward.get_total_flops() == forward_flop(config, *lengths)
    with FlopCounterMode(display=False) as both:
        step.accumulate(Batch.padded(source_BS, target_BT, torch.float32), seed=1)
    unneeded = first_steps_products(config) * n if name == "recurrent" else 0
    assert both.get_total_flops() == training_flop(config, *lengths) - unneeded


def looped(self: nn.LSTM, x_BLX: Tensor) -> tuple[Tensor, None]:
    h_BF = c_BF = x_BLX.new_zeros(len(x_BLX), self.hidden_size)
    outputs = []
    for x_BX in x_BLX.unbind(1):
        gates = F.linear(x_BX, self.weight_ih_l0, self.bias_ih_l0) + F.linear(h_BF, self.weight_hh_l0, self.bias_hh_l0)
        i, f, g, o = gates.chunk(4, dim=1)
        c_BF = f.sigmoid() * c_BF + i.sigmoid() * g.tanh()
        h_BF = o.sigmoid() * c_BF.tanh()
        outputs.append(h_BF)
    return torch.stack(outputs, dim=1), None


def first_steps_products(config: Any) -> int:
    """The gradients of the first states, which are constants: one product per layer."""
    half, above = config.d_ff // 2, config.n_layers - 1
    return 2 * 4 * (2 * half * half + above * config.d_ff**2 + config.n_layers * config.d_ff**2)


@torch.no_grad()
def test_a_new_convolutional_model_keeps_the_variance_of_activations() -> None:
    """From layer to layer, and with dropout, like in §3.5 of its paper: within a factor of two after six layers."""
    torch.manual_seed(0)
    model = Convolutional(config_of("convolutional", vocabulary_size=500, n_layers=6, d_model=64, d_ff=96, dropout=0.2))
    squares: dict[str, float] = {}
    for name, module in model.named_modules():
        if name.startswith(("encoder", "decoder")) and name.count(".") <= 1:
            module.register_forward_hook(
                lambda _m, _i, output, name=name: squares.update({name: output.square().mean()})
            )
    tokens_BL = torch.randint(4, 500, (40, 30))
    hidden_BTD = hidden_of(model.train(), tokens_BL, tokens_BL)
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
            bias = model.encoder_output.bias.grad
            factors.append(float(bias.sum()) / (5 + 2 + 4 + 4) / 6)
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
        (
            {"architecture": "recurrent", "positions": "learned"},
            "positions is 'learned', but a recurrent model has no positions",
        ),
        ({"architecture": "recurrent", "n_layers": 1}, "n_layers is 1; a recurrent model"),
        ({"architecture": "recurrent", "d_ff": 9}, "d_ff is 9; .* must be even"),
        ({"architecture": "recurrent", "attention_window": 3}, "a recurrent model has no attention_window"),
    ],
)
def test_what_an_architecture_lacks_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(BASE, **changes)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_are_counted_without_memory(name: str) -> None:
    config = config_of(name)
    assert count_parameters(config) == sum(parameter.numel() for parameter in make_model(config).parameters())
