import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import CrossAttention, MultiHeadAttention, ScaledDotProductAttention
from model.batch import EncoderOutput, PaddedLayout, Rows, shift_right
from model.config import END_ID, PAD_ID, TransformerConfig
from model.decoder import IncrementalDecoder
from model.dropout import Dropout, pair_keys
from model.loss import smoothed_cross_entropy
from model.transformer import FIRST_POSITIONS, FeedForward, Transformer, sinusoids
from tests.support.batches import hidden_of
from tests.support.torch_reference import copy_layers

KEYS_B = pair_keys(1, 1, torch.arange(3))
TINY = TransformerConfig(23, n_layers=2, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=4, dropout=0.0)
SOURCE_BS = torch.tensor([[5, 9, 7, 4, END_ID], [11, 6, END_ID, PAD_ID, PAD_ID], [8, END_ID, PAD_ID, PAD_ID, PAD_ID]])
TARGET_BT = torch.tensor([[6, END_ID, PAD_ID, PAD_ID], [7, 12, 4, END_ID], [9, 9, END_ID, PAD_ID]])


def random_model(config: TransformerConfig, seed: int = 0) -> Transformer:
    """Returns a float64 model with random parameters, including those that start at 0 or 1."""
    torch.manual_seed(seed)
    model = Transformer(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(
    "source_BS", [SOURCE_BS, SOURCE_BS.flip(1), SOURCE_BS.roll(3, 1)], ids=["end", "start", "middle"]
)
def test_equals_torchs_reference_modules(source_BS: Tensor) -> None:
    """Loss and gradients are those of nn.Transformer{Encoder,Decoder}Layer and F.cross_entropy, wherever padding is."""
    ours = random_model(TINY)
    sizes = {"d_model": 12, "nhead": 3, "dim_feedforward": 20, "dropout": 0.0, "batch_first": True, "norm_first": False}
    encoder = [nn.TransformerEncoderLayer(**sizes).double() for _ in range(2)]
    decoder = [nn.TransformerDecoderLayer(**sizes).double() for _ in range(2)]
    embedding_VD = nn.Parameter(ours.embedding.weight.detach().clone())
    same = [([ours.embedding.weight], embedding_VD), *copy_layers(ours, encoder, decoder)]

    def embed(tokens_BL: Tensor) -> Tensor:
        return F.embedding(tokens_BL, embedding_VD) * math.sqrt(12) + sinusoids(tokens_BL.shape[1], 12).double()

    padding_BS = source_BS == PAD_ID
    memory_BSD = embed(source_BS)
    for layer in encoder:
        memory_BSD = layer(memory_BSD, src_key_padding_mask=padding_BS)
    x_BTD = embed(shift_right(TARGET_BT))
    causal_TT = nn.Transformer.generate_square_subsequent_mask(TARGET_BT.shape[1], dtype=torch.float64)
    for above in decoder:
        x_BTD = above(x_BTD, memory_BSD, tgt_mask=causal_TT, memory_key_padding_mask=padding_BS)
    logits_NV, targets_N = (x_BTD @ embedding_VD.T).flatten(0, 1), TARGET_BT.flatten()
    expected = F.cross_entropy(logits_NV, targets_N, ignore_index=PAD_ID, reduction="sum", label_smoothing=0.1)
    expected.backward()

    hidden_BTD = hidden_of(ours, source_BS, shift_right(TARGET_BT))
    loss, _ = smoothed_cross_entropy(hidden_BTD.flatten(0, 1), ours.embedding.weight, TARGET_BT.flatten(), 0.1)
    loss.backward()
    torch.testing.assert_close(hidden_BTD, x_BTD, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    for mine, theirs in same:
        grads = torch.cat([parameter.grad for parameter in mine if parameter.grad is not None])
        torch.testing.assert_close(grads, theirs.grad, rtol=1e-10, atol=1e-10)
    assert sum(len(mine) for mine, _ in same) == len(list(ours.parameters()))


def test_attention_of_free_sizes_is_equation_1_head_by_head() -> None:
    """With different d_k, d_v and d_model / h, each head is softmax(QKᵀ/√d_k)V and W_O joins them."""
    torch.manual_seed(0)
    attention = CrossAttention(d_model=10, n_heads=3, d_k=2, d_v=5, function=ScaledDotProductAttention()).double()
    x_BLD, encoded_BMD = torch.randn(2, 4, 10, dtype=torch.float64), torch.randn(2, 6, 10, dtype=torch.float64)
    bias_B11M = torch.tensor([[0.0] * 6, [0.0] * 4 + [-math.inf] * 2], dtype=torch.float64)[:, None, None]
    w_k, w_v = attention.w_kv.weight.split([6, 15])
    heads = []
    for head in range(3):
        q = x_BLD @ attention.w_q.weight[2 * head : 2 * head + 2].T
        k = encoded_BMD @ w_k[2 * head : 2 * head + 2].T
        v = encoded_BMD @ w_v[5 * head : 5 * head + 5].T
        heads.append(torch.softmax(q @ k.mT / math.sqrt(2) + bias_B11M[:, 0], dim=-1) @ v)
    expected = torch.cat(heads, dim=-1) @ attention.w_o.weight.T
    keys = attention.keys(EncoderOutput(encoded_BMD.flatten(0, 1), PaddedLayout(2, 6, bias_B11M)))
    x_ND = attention(x_BLD.flatten(0, 1), PaddedLayout(2, 4, None), keys)
    torch.testing.assert_close(x_ND.view(2, 4, 10), expected, rtol=1e-12, atol=1e-12)


def test_learned_positions_end_where_the_table_ends() -> None:
    source = Rows.padded(torch.full((1, 300), 7), torch.float32)
    with pytest.raises(ValueError, match="300 tokens, but the learned positions end at 299"):
        Transformer(replace(TINY, positions="learned", max_positions=299)).encode(source)
    assert Transformer(TINY).encode(source).x_ND.shape == (300, 12)


def test_dropout_stands_where_the_paper_puts_it() -> None:
    """Dropout acts only on sub-layer outputs before they are added, and on embeddings plus positions (§5.4)."""
    model = random_model(replace(TINY, dropout=0.4)).train()
    inputs_BT = shift_right(TARGET_BT)
    seen: list[tuple[Tensor, Tensor]] = []
    sublayers: list[Tensor] = []
    hooks = [
        m.register_forward_hook(lambda _m, x, y: seen.append((x[0], y))) for m in model.modules() if type(m) is Dropout
    ]
    for module in model.modules():
        if isinstance(module, FeedForward | MultiHeadAttention):
            hooks.append(module.register_forward_hook(lambda _m, _x, y: sublayers.append(y)))
    hidden_of(model, SOURCE_BS, inputs_BT, KEYS_B)
    source_BSD = model.embedding(SOURCE_BS) * math.sqrt(12) + sinusoids(5, 12)
    target_BTD = model.embedding(inputs_BT) * math.sqrt(12) + sinusoids(4, 12)
    expected = [source_BSD.flatten(0, 1), *sublayers[:4], target_BTD.flatten(0, 1), *sublayers[4:]]
    assert len(seen) == len(expected) == 2 + 2 * 2 + 2 * 3
    for (given, _), wanted in zip(seen, expected, strict=True):
        torch.testing.assert_close(given, wanted, rtol=1e-12, atol=1e-12)
    for hook in hooks:
        hook.remove()

    # All of a sub-layer's output dropped: LayerNorm(x) remains, twice.
    layer = model.encoder[0]
    x_ND = torch.randn(6, 12, dtype=torch.float64)
    norms = layer.attention_norm, layer.feed_forward_norm
    hooks = [norm.dropout.register_forward_hook(lambda _m, _x, y: torch.zeros_like(y)) for norm in norms]
    layout = PaddedLayout(2, 3, None, torch.arange(6, dtype=torch.int32))
    expected_ND = x_ND
    for norm in norms:
        expected_ND = F.layer_norm(expected_ND, (12,), norm.weight, norm.bias)
    torch.testing.assert_close(layer(x_ND, layout), expected_ND)
    for hook in hooks:
        hook.remove()

    # Without its Dropout modules, a model in training mode is the model in evaluation mode.
    for module in model.modules():
        if type(module) is Dropout:
            module.p = 0.0
    assert torch.equal(hidden_of(model, SOURCE_BS, inputs_BT), hidden_of(model.eval(), SOURCE_BS, inputs_BT))


@pytest.mark.parametrize("window", [0, 2])
def test_dropout_of_attention_weights_reaches_every_attention_and_training_alone(window: int) -> None:
    """§6.3's dropout acts on the weights of all 3 N attentions. In evaluation, whole or stepwise, it changes no bit."""
    plain = random_model(replace(TINY, attention_window=window)).eval()
    dropping = Transformer(replace(plain.config, attention_dropout=0.4)).double()
    dropping.load_state_dict(plain.state_dict())
    inputs_BT = shift_right(TARGET_BT)
    shapes: list[torch.Size] = []
    hooks = [
        module.register_forward_hook(lambda _m, x, _y: shapes.append(x[0].shape))
        for name, module in dropping.named_modules()
        if name.endswith("function.dropout")
    ]
    dropping.train()
    first = hidden_of(dropping, SOURCE_BS, inputs_BT, KEYS_B)
    assert torch.equal(hidden_of(dropping, SOURCE_BS, inputs_BT, KEYS_B), first)
    assert not torch.allclose(hidden_of(dropping, SOURCE_BS, inputs_BT, KEYS_B + 1), first)
    assert shapes[:6] == [*[(3, 3, 5, 5)] * 2, *[(3, 3, 4, 4), (3, 3, 4, 5)] * 2]
    for hook in hooks:
        hook.remove()

    dropping.eval()
    assert torch.equal(hidden_of(dropping, SOURCE_BS, inputs_BT), hidden_of(plain, SOURCE_BS, inputs_BT))
    decoders = [IncrementalDecoder(model) for model in (dropping, plain)]
    with torch.no_grad():
        caches = [decoder.start(SOURCE_BS) for decoder in decoders]
        for i in range(inputs_BT.shape[1]):
            ours, theirs = (d.step(inputs_BT[:, i : i + 1], c) for d, c in zip(decoders, caches, strict=True))
            assert torch.equal(ours, theirs)


def test_sinusoids_are_the_formula() -> None:
    pe_LD = sinusoids(5003, 6)
    for position in (*range(5), *range(5000, 5003)):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert abs(pe_LD[position, 2 * i] - math.sin(angle)) < 1e-7
            assert abs(pe_LD[position, 2 * i + 1] - math.cos(angle)) < 1e-7


def test_longer_sentences_leave_the_table_in_place() -> None:
    """A CUDA graph keeps reading it. The values are those of a preallocated table."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(9, n_layers=1, d_model=6, d_ff=8, n_heads=1, d_k=4, d_v=4)).eval()
    table_LD = model._sinusoids_LD
    source = Rows.padded(torch.full((1, FIRST_POSITIONS + 44), 5), torch.float32)
    x_ND = model.encode(source).x_ND
    assert model._sinusoids_LD is table_LD
    model.reserve_positions(FIRST_POSITIONS + 44)
    assert len(model._sinusoids_LD) == FIRST_POSITIONS + 44
    assert torch.equal(model.encode(source).x_ND, x_ND)


CONFIG = TransformerConfig(4000, n_layers=2, d_model=64, d_ff=256, n_heads=4, d_k=24, d_v=40, positions="learned")


@pytest.fixture(scope="module")
def model() -> Transformer:
    """A model whose sizes all differ, so that mix-ups show."""
    torch.manual_seed(5)
    return Transformer(CONFIG)


def test_embeddings_have_unit_variance_once_scaled(model: Transformer) -> None:
    for weight in (model.embedding.weight, model.positions.weight):
        assert weight.std().item() * math.sqrt(CONFIG.d_model) == pytest.approx(1, rel=0.02)
        assert weight.mean().item() == pytest.approx(0, abs=0.002)


def test_projections_are_xavier_uniform_as_the_authors_fused_them(model: Transformer) -> None:
    """Every matrix is uniform in [-√(6 / (in + out)), √(6 / (in + out))], where q, k and v, or k and v, are one."""
    checked = 0
    for name, weight in model.named_parameters():
        if weight.dim() < 2 or "embedding" in name or "positions" in name:
            continue
        bound = math.sqrt(6 / sum(weight.shape))
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.01), name
        assert weight.abs().max().item() <= bound, name
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03), name
        checked += 1
    assert checked == CONFIG.n_layers * (2 + 2 + 2 + 3 + 2)
