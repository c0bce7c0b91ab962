"""Loads checkpoints that other libraries can compute."""

from sentencepiece import SentencePieceProcessor

from model.transformer import Transformer
from pipeline.artifacts import Checkpoint
from pipeline.errors import UserError
from pipeline.evaluation.translation import load_checkpoint


def load_transformer(checkpoint: Checkpoint, library: str) -> tuple[Transformer, SentencePieceProcessor]:
    """Loads a model and its vocabulary. Raises UserError if the checkpoint is unusable or the library lacks its parts.

    CTranslate2 and MarianMT lack the same ones, except that MarianMT needs d_k = d_model / n_heads, too.
    """
    model, vocabulary = load_checkpoint(checkpoint.folder)
    config = model.config
    d_k = config.d_model / config.n_heads if library == "MarianMT" else config.d_v
    if not isinstance(model, Transformer):
        lacking = f"{config.architecture} model"
    elif not config.d_k == config.d_v == d_k:
        lacking = f"d_k {config.d_k} and d_v {config.d_v}, which must be {d_k:g}"
    elif config.attention != "scaled_dot_product":
        lacking = f"{config.attention} attention"
    elif config.attention_window:
        lacking = f"attention_window {config.attention_window}"
    else:
        return model, vocabulary
    raise UserError(f"{checkpoint.folder}: {library} has no {lacking}; translate with aiayn")
