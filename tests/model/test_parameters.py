"""model.parameters: a module computes with the numbers of its vector, in the order of its parameters."""

from copy import deepcopy

import torch
from torch import nn

from model.parameters import flatten, views


def test_parameters_are_views_of_the_vector() -> None:
    """Values stay as they were; a change of the vector is one of the weights and the other way round."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2, bias=False))
    before, x = deepcopy(module), torch.randn(5, 3)
    weights_P = flatten(module)
    assert weights_P.shape == (3 * 4 + 4 + 2 * 4 + 4 * 2,)
    assert torch.equal(module(x), before(x))
    weights_P[:12] = 0
    assert not module[0].weight.any()
    assert torch.equal(module[2].weight, before[2].weight)
    module.load_state_dict(before.state_dict())
    assert torch.equal(weights_P, torch.cat([parameter.detach().flatten() for parameter in before.parameters()]))


def test_views_have_the_shapes_and_order_of_the_parameters() -> None:
    """Numbering the vector numbers the parameters one after the other, and the views share its memory."""
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    values_P = torch.arange(13.0)
    parts = views(values_P, module)
    assert [part.shape for part in parts] == [parameter.shape for parameter in module.parameters()]
    assert [part.flatten().tolist() for part in parts] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8],
        [9, 10, 11],
        [12],
    ]
    parts[1] += 1
    assert values_P[6:9].tolist() == [7, 8, 9]
