"""pipeline.complexity: the functions of §3.2.1 compute their formulas, and a Transformer trains with each."""

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.attention import attention, masking_bias
from model.batch import Batch
from model.transformer import Transformer
from pipeline.complexity import attention_training
from pipeline.complexity.layer_types.attention_functions import Additive, make_function, use
from pipeline.complexity.layer_types.sizes import ATTENTION_FUNCTIONS, AttentionFunction
from pipeline.store.artifact import Context
from pipeline.store.artifacts import EncodedDataset
from tests.support.tiny_training import TINY, with_fields

MASKED = 2
"""The key masked by the input's bias."""


def random_input() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values of two sentences in three heads, and a bias that masks a key."""
    torch.manual_seed(1)
    q_BHLK, k_BHMK, v_BHMV = (torch.randn(2, 3, *sizes, dtype=torch.float64) for sizes in ((5, 8), (4, 8), (4, 6)))
    return q_BHLK, k_BHMK, v_BHMV, masking_bias(torch.arange(4) == MASKED, torch.float64)


def test_dot_products_are_those_of_the_model() -> None:
    """Scaled attention equals the model's to the bit. Unscaled attention equals it for queries divided by √d_k."""
    q_BHLK, *others = random_input()
    expected_BHLV = attention(q_BHLK, *others)
    assert make_function("scaled dot-product", 3, 8)(q_BHLK, *others).equal(expected_BHLV)
    unscaled_BHLV = make_function("dot-product", 3, 8)(q_BHLK / math.sqrt(8), *others)
    torch.testing.assert_close(unscaled_BHLV, expected_BHLV)


def test_additive_attention_is_its_formula() -> None:
    """v · tanh(W q + U k) for each pair of positions, with each head's own parameters."""
    q_BHLK, k_BHMK, v_BHMV, bias_M = random_input()
    function = Additive(3, 8).double()
    scores_BHLM = torch.empty(2, 3, 5, 4, dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, scores_BHLM.shape)).tolist():
        hidden_X = torch.tanh(function.w_HKX[h].T @ q_BHLK[b, h, i] + function.u_HKX[h].T @ k_BHMK[b, h, j])
        scores_BHLM[b, h, i, j] = function.v_HX1[h, :, 0] @ hidden_X
    expected_BHLV = (scores_BHLM + bias_M).softmax(-1) @ v_BHMV
    torch.testing.assert_close(function(q_BHLK, k_BHMK, v_BHMV, bias_M), expected_BHLV)


def test_parameters_follow_the_type_of_the_queries() -> None:
    """Small bfloat16 batches on CPUs attend in float32 (`model.cpu.to_fastest_dtype`), even if parameters are not."""
    *tensors, bias_M = (tensor.float() for tensor in random_input())
    function = Additive(3, 8).bfloat16()
    x_BHLV = function(*tensors, bias_M.bfloat16())
    assert x_BHLV.dtype == torch.float32
    assert x_BHLV.equal(function.float()(*tensors, bias_M))


@pytest.mark.parametrize("name", ATTENTION_FUNCTIONS)
def test_masked_positions_have_no_weight(name: AttentionFunction) -> None:
    """Changing a masked key and its value changes nothing. Changing another key does."""
    q_BHLK, k_BHMK, v_BHMV, bias_M = random_input()
    function = make_function(name, 3, 8).double()
    x_BHLV = function(q_BHLK, k_BHMK, v_BHMV, bias_M)
    for position in (MASKED, MASKED + 1):
        k_BHMK[:, :, position], v_BHMV[:, :, position] = 9.0, 9.0
        assert function(q_BHLK, k_BHMK, v_BHMV, bias_M).equal(x_BHLV) == (position == MASKED)


def computed(model: Transformer) -> torch.Tensor:
    """The model's hidden rows for two pairs of sentences with padding."""
    batch = Batch.padded(torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([[8, 3, 0], [9, 7, 3]]), torch.float32)
    hidden_ND: torch.Tensor = model.eval()(batch.source, batch.inputs)
    return hidden_ND


def random_model(seed: int = 2) -> Transformer:
    """A two-layer model with random weights."""
    torch.manual_seed(seed)
    return Transformer(replace(TINY.model, n_layers=2))


def test_all_attentions_of_a_transformer_use_the_function() -> None:
    """Each attention learns its own parameters, which are saved, loaded and copied with the model."""
    model = use(random_model(), "additive")
    computed(model).square().sum().backward()
    names = {name for name, _ in model.named_parameters() if ".function." in name}
    assert len(names) == (2 + 2 * 2) * 3
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())

    loaded = use(random_model(3), "additive")
    loaded.load_state_dict(model.state_dict())
    copied = deepcopy(model)
    assert computed(loaded).equal(computed(model))
    with torch.no_grad():
        for name in names:
            model.get_parameter(name).zero_()
    assert computed(copied).equal(computed(loaded))
    assert not computed(model).equal(computed(loaded))


def test_the_scaled_function_is_the_model_without_any() -> None:
    """Scaled dot-product attention leaves the model's output bit-identical. Unscaled attention changes it."""
    expected_ND = computed(random_model())
    assert computed(use(random_model(), "scaled dot-product")).equal(expected_ND)
    assert not computed(use(random_model(), "dot-product")).allclose(expected_ND)


def test_a_restricted_model_is_refused() -> None:
    """A model with an attention window is rejected: the functions would attend to all positions."""
    with pytest.raises(ValueError, match="attention_window"):
        use(Transformer(replace(TINY.model, attention_window=3)), "additive")


@pytest.mark.usefixtures("one_thread", "many_recoveries")
def test_training_goes_on_where_it_was_killed(dataset: EncodedDataset, tmp_path: Path) -> None:
    """A resumed run has the perplexity of an uninterrupted one and keeps no weights. The function changes it.

    With tries, the learning rate is the one of the best.
    """
    settings = with_fields(updates=3, validation_updates=3, checkpoint_updates=3)
    tries: list[attention_training.AttentionTraining] = []

    def train(name: str, function: AttentionFunction, die_at: int = 0) -> attention_training.AttentionTraining:
        def emit(event: dict[str, Any]) -> None:
            if event.get("step") == die_at:
                raise KeyboardInterrupt

        (tmp_path / name).mkdir(exist_ok=True)
        return attention_training.train(Context(tmp_path / name, emit), dataset, function, settings, tries)

    whole = train("whole", "additive").load()
    with pytest.raises(KeyboardInterrupt):
        train("killed", "additive", die_at=2)
    assert (tmp_path / "killed" / "recovery" / "00000001").exists()
    resumed = train("killed", "additive")
    assert resumed.load().model_copy(update={"train_s": whole.train_s}) == whole
    assert {path.name for path in resumed.folder.iterdir()} == {"attention_training.json", "metrics.jsonl"}
    assert whole.dev_perplexity == pytest.approx(math.exp(whole.dev_nll))

    scaled = train("scaled", "scaled dot-product").load()
    assert scaled.dev_nll != whole.dev_nll
    for name, rate, nll in (("slow", 0.25, 5.0), ("best", 0.5, 4.0), ("fast", 1.0, 6.0)):
        (tmp_path / name).mkdir()
        record = scaled.model_copy(update={"learning_rate_scale": rate, "dev_nll": nll})
        tries.append(attention_training.AttentionTraining(tmp_path / name).write(record))
    at_best = train("at best", "scaled dot-product").load()
    assert (at_best.learning_rate_scale, at_best.seed) == (0.5, settings.seed)
    assert at_best.dev_nll not in {scaled.dev_nll, 4.0}
    assert whole.parameters - scaled.parameters == 3 * 2 * (2 * 16 * 16 + 16)  # three attentions of two heads
