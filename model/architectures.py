"""The architectures: the Transformer and the paper's competitors.

model = make_model(config)                  # the class that config.architecture names
beam_search(make_decoder(model), source_BS)
"""

from typing import Any

from model.baselines.convolutional import Convolutional
from model.baselines.recurrent import Recurrent
from model.baselines.states import StateDecoder
from model.config import TransformerConfig
from model.decoder import Decoder, IncrementalDecoder
from model.transformer import EncoderDecoder, Transformer

ARCHITECTURES: dict[str, type[EncoderDecoder]] = {
    "transformer": Transformer,
    "recurrent": Recurrent,
    "convolutional": Convolutional,
}


def make_model(config: TransformerConfig) -> EncoderDecoder:
    """Builds a model with random weights, drawn from torch's global generator."""
    return ARCHITECTURES[config.architecture](config)


def make_decoder(model: EncoderDecoder) -> Decoder[Any]:
    """Returns the model's step-by-step decoder for beam search."""
    return IncrementalDecoder(model) if isinstance(model, Transformer) else StateDecoder(model)
