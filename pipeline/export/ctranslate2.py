"""Exports a checkpoint to CTranslate2, which translates without torch: pip install 'aiayn[ctranslate2]'.

    exported = export(Context(folder), checkpoint)

    model, pieces = ctranslate2.Translator("folder"), SentencePieceProcessor(model_file="folder/joint.model")
    found = model.translate_batch([pieces.encode("Two dogs run .", out_type=str)], beam_size=4)
    pieces.decode(found[0].hypotheses[0])

Weights stay float32; `Translator(folder, compute_type="int8")` quantises them on loading. Log-probabilities equal
`model.transformer`'s, and with SAME_SEARCH so do outputs, nearly always: CTranslate2's search ends once `beam_size`
outputs have, ours when no open hypothesis can win. Its `length_penalty` divides by |y|^α, not ((5 + |y|) / 6)^α.

By default, <unk> is allowed, empty outputs are not, outputs are truncated at 256 tokens and sources at 1,024. If a
model has fewer learned positions, set `max_input_length` and `max_decoding_length` to `max_positions`; else it raises
RuntimeError.

Byte pieces such as `<0xE6>` are ordinary pieces for CTranslate2. `decode` turns invalid bytes into U+FFFD, and `<0x0A>`
into a line feed, for which `aiayn translate` writes a space.
"""

from importlib import import_module
from types import MappingProxyType
from typing import Any

from torch import Tensor

from model.config import BEGIN_ID, END_ID, UNKNOWN_ID
from model.transformer import Transformer, sinusoids
from pipeline.artifacts import VOCABULARY_FILE, Checkpoint
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.export.transformer import load_transformer
from pipeline.settings import LONGEST_TOKENS
from pipeline.store.artifact import Artifact

SAME_SEARCH = MappingProxyType(
    {"length_penalty": 0, "disable_unk": True, "suppress_sequences": [["<pad>"], ["<s>"]], "min_decoding_length": 0}
)
"""Options of `translate_batch` for our search with length penalty 0."""
N_POSITIONS = 2 * LONGEST_TOKENS
"""Number of positions of an exported model with sinusoids."""


def export(context: Context, checkpoint: Checkpoint) -> Artifact:
    """Converts a checkpoint for CTranslate2.

    Callers of CTranslate2 pass only pieces: it adds END_ID to a source and starts a target with BEGIN_ID. Raises
    UserError if CTranslate2 cannot be loaded or does not support the model, or if the checkpoint is unusable.
    """
    try:
        specs = import_module("ctranslate2.specs.transformer_spec")
    except (ImportError, OSError) as error:
        words = " ".join(str(error).split())
        raise UserError(
            f"CTranslate2 cannot be loaded ({words}); pip install --force-reinstall 'ctranslate2>=4.8,<5'"
        ) from None
    model, vocabulary = load_transformer(checkpoint, "CTranslate2")
    config = model.config
    sizes = {"num_layers": config.n_layers, "num_heads": config.n_heads, "head_dim": config.d_k, "pre_norm": False}
    spec = specs.TransformerSpec(specs.TransformerEncoderSpec(**sizes), specs.TransformerDecoderSpec(**sizes))
    _set_weights(spec, model)
    pieces = [vocabulary.id_to_piece(i) for i in range(len(vocabulary))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        pieces[i] for i in (UNKNOWN_ID, BEGIN_ID, END_ID)
    )
    spec.config.decoder_start_token = pieces[BEGIN_ID]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.decoder[0].feed_forward_norm.eps
    spec.register_file(str(checkpoint.vocabulary), VOCABULARY_FILE)
    spec.register_file(str(checkpoint.folder / "model.json"))
    spec.validate()
    spec.optimize()  # stores shared matrices once
    spec.save(str(context.folder))
    return Artifact(context.folder)


def _set_weights(spec: Any, model: Transformer) -> None:
    """Sets all weights of a TransformerSpec, which by default scales embeddings by √d_model."""
    weights, config = model.state_dict(), model.config
    learned_LD = weights.get("positions.weight")
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = sinusoids(N_POSITIONS, config.d_model) if learned_LD is None else learned_LD
    for embedding in (*spec.encoder.embeddings, spec.decoder.embeddings, spec.decoder.projection):
        embedding.weight = weights["embedding.weight"]
    for i in range(config.n_layers):
        encoder, decoder = spec.encoder.layer[i], spec.decoder.layer[i]
        _set_attention(encoder.self_attention, weights, f"encoder.{i}.attention")
        _set_feed_forward(encoder.ffn, weights, f"encoder.{i}.feed_forward")
        _set_attention(decoder.self_attention, weights, f"decoder.{i}.self_attention")
        _set_attention(decoder.attention, weights, f"decoder.{i}.cross_attention")
        _set_feed_forward(decoder.ffn, weights, f"decoder.{i}.feed_forward")


def _set_attention(spec: Any, weights: dict[str, Tensor], name: str) -> None:
    """Sets an attention layer: one matrix for q, k and v in self-attention, a separate one for q in cross-attention."""
    products = ["w_qkv"] if len(spec.linear) == 2 else ["w_q", "w_kv"]
    for linear, product in zip(spec.linear, products, strict=False):
        linear.weight = weights[f"{name}.{product}.weight"]
    spec.linear[-1].weight = weights[f"{name}.w_o.weight"]
    _set_norm(spec.layer_norm, weights, f"{name}_norm")


def _set_feed_forward(spec: Any, weights: dict[str, Tensor], name: str) -> None:
    for linear, ours in ((spec.linear_0, "w_1"), (spec.linear_1, "w_2")):
        linear.weight, linear.bias = weights[f"{name}.{ours}.weight"], weights[f"{name}.{ours}.bias"]
    _set_norm(spec.layer_norm, weights, f"{name}_norm")


def _set_norm(spec: Any, weights: dict[str, Tensor], name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
