from typing import Any

import torch

from model.architectures import make_model
from model.baselines.states import StatefulModel
from model.config import TransformerConfig

NAMES = ("recurrent", "convolutional")


def config_of(architecture: Any, **changes: Any) -> TransformerConfig:
    """Returns the sizes of a tiny model: no two widths are alike."""
    sizes: dict[str, Any] = {"vocabulary_size": 11, "n_layers": 3, "d_model": 6, "d_ff": 10, "dropout": 0.3}
    positions = "learned" if architecture == "convolutional" else "sinusoidal"
    return TransformerConfig(**{**sizes, "architecture": architecture, "positions": positions, **changes})


def random_model(architecture: str, seed: int = 0, scale: float = 2.0, **changes: Any) -> StatefulModel:
    """Returns a float64 model in evaluation mode, without zero weights and with distributions far from uniform."""
    torch.manual_seed(seed)
    model: Any = make_model(config_of(architecture, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(scale * (parameter + 0.1 * torch.randn_like(parameter)))
    return model
