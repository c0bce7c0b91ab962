"""Exports a checkpoint to Hugging Face Transformers, as a MarianMTModel: pip install 'aiayn[huggingface]'.

    exported = export(Context(folder), checkpoint)

    tokenizer, model = MarianTokenizer.from_pretrained("folder"), MarianMTModel.from_pretrained("folder")
    found = model.generate(**tokenizer(["Two dogs run ."], return_tensors="pt", padding=True))
    tokenizer.batch_decode(found, skip_special_tokens=True)

Writing and loading neither pickle nor need the network. Logits equal `model.transformer`'s:

- MarianMT's positions are all sines, then all cosines, where ours alternate, so every weight's d_model is reordered.
- Its attention and projection have biases, which are set to 0.
- The tokenizer runs the vocabulary's own sentencepiece, which normalises lines, so ids are ours. Only `>>...<<` at the
  start of a line, its language code, becomes one unknown piece.

`generate` with length_penalty=0 equals `model.search` with α = 0, unless a limit truncates an output: here 512 tokens,
there 50 more than the source. For other α, the two differ (LENGTH_PENALTY).
"""

import shutil
from typing import Any

import torch
from torch import Tensor

from model.config import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID, SearchConfig, TransformerConfig
from model.search import NEVER_PRODUCED
from model.transformer import Transformer, sinusoids
from pipeline.artifacts import Checkpoint
from pipeline.context import Context
from pipeline.export.transformer import load_transformer
from pipeline.settings import LONGEST_TOKENS
from pipeline.store.artifact import Artifact
from pipeline.store.tensors import write_tensors

ATTENTIONS = {
    "encoder": {"attention": "self_attn"},
    "decoder": {"self_attention": "self_attn", "cross_attention": "encoder_attn"},
}
"""MarianMT's names of the attention layers in each stack, by our names."""
MAX_OUTPUT_TOKENS = 512
"""Default limit on outputs, END_ID included, as in other MarianMT models."""
LENGTH_PENALTY = 0.5
"""Default. MarianMT divides a log-probability by |y|^α, which grows faster than the paper's ((5 + |y|) / 6)^α. With 0.5
it grows as fast at 25 tokens as the paper's with 0.6, and 99.4% of outputs were the same; with 0.6, 98.3%."""
SPECIAL_IDS = {
    "pad_token_id": PAD_ID,
    "bos_token_id": BEGIN_ID,
    "eos_token_id": END_ID,
    "decoder_start_token_id": BEGIN_ID,
}


def export(context: Context, checkpoint: Checkpoint) -> Artifact:
    """Converts a checkpoint for Transformers: weights, configurations and tokenizer.

    Raises UserError if MarianMT does not support the model, or if the checkpoint is unusable.
    """
    model, vocabulary = load_transformer(checkpoint, "MarianMT")
    config, exported = model.config, Artifact(context.folder)
    write_tensors(exported.folder / "model.safetensors", marian_weights(model), {"format": "pt"})
    sizes = marian_config(config)
    described = {"model_type": "marian", "architectures": ["MarianMTModel"], "dtype": "float32", **sizes}
    exported.write_json("config.json", described)
    search = {
        "num_beams": SearchConfig.beam_size,
        "length_penalty": LENGTH_PENALTY,
        "early_stopping": False,
        "max_length": 1 + min(sizes["max_position_embeddings"], MAX_OUTPUT_TOKENS),  # BEGIN_ID counts here
        "suppress_tokens": list(NEVER_PRODUCED),
    }
    exported.write_json("generation_config.json", {**search, **SPECIAL_IDS})
    pieces = [vocabulary.id_to_piece(i) for i in range(len(vocabulary))]
    exported.write_json("vocab.json", {piece: i for i, piece in enumerate(pieces)})
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(checkpoint.vocabulary, exported.folder / name)
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "pad_token": pieces[PAD_ID],
        "unk_token": pieces[UNKNOWN_ID],
        "bos_token": pieces[BEGIN_ID],
        "eos_token": pieces[END_ID],
        "split_special_tokens": True,  # "</s>" in a line is text, as for sentencepiece
        "clean_up_tokenization_spaces": False,
        "model_max_length": sizes["max_position_embeddings"],
    }
    exported.write_json("tokenizer_config.json", tokenizer)
    return exported


def marian_config(config: TransformerConfig) -> dict[str, Any]:
    """Returns MarianConfig's arguments for the model; `attention_window` has no equivalent."""
    stacks = {
        f"{stack}_{name}": size
        for stack in ATTENTIONS
        for name, size in (("layers", config.n_layers), ("attention_heads", config.n_heads), ("ffn_dim", config.d_ff))
    }
    return {
        "vocab_size": config.vocabulary_size,
        "d_model": config.d_model,
        **stacks,
        "max_position_embeddings": config.max_positions if config.positions == "learned" else LONGEST_TOKENS,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "activation_function": "relu",
        "scale_embedding": True,
        "init_std": config.d_model**-0.5,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "forced_eos_token_id": None,
        **SPECIAL_IDS,
    }


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Returns MarianMTModel weights that compute the model's logits in any dtype, with d_model ordered like its
    sinusoids. The matrix shared by embeddings and projection is included once."""
    ours, d_model = model.state_dict(), model.config.d_model
    order = torch.tensor([*range(0, d_model, 2), *range(1, d_model, 2)])
    positions_LD = ours.get("positions.weight")
    if positions_LD is None:
        positions_LD = sinusoids(LONGEST_TOKENS, d_model)
    theirs = {"model.shared.weight": ours["embedding.weight"][:, order]}

    def norm(mine: str, name: str) -> None:
        theirs.update({f"{name}.{kind}": ours[f"{mine}.{kind}"][order] for kind in ("weight", "bias")})

    for stack, attentions in ATTENTIONS.items():
        theirs[f"model.{stack}.embed_positions.weight"] = positions_LD[:, order]
        for i in range(model.config.n_layers):
            mine, name = f"{stack}.{i}", f"model.{stack}.layers.{i}"
            for attention, marian in attentions.items():
                products = (ours.get(f"{mine}.{attention}.{matrix}.weight") for matrix in ("w_qkv", "w_q", "w_kv"))
                rows = torch.cat([product for product in products if product is not None])[:, order].chunk(3)
                outputs = ours[f"{mine}.{attention}.w_o.weight"][order]
                for kind, weight in zip(("q", "k", "v", "out"), (*rows, outputs), strict=True):
                    theirs[f"{name}.{marian}.{kind}_proj.weight"] = weight.clone()
                    theirs[f"{name}.{marian}.{kind}_proj.bias"] = weight.new_zeros(d_model)
                norm(f"{mine}.{attention}_norm", f"{name}.{marian}_layer_norm")
            theirs[f"{name}.fc1.weight"] = ours[f"{mine}.feed_forward.w_1.weight"][:, order]
            theirs[f"{name}.fc1.bias"] = ours[f"{mine}.feed_forward.w_1.bias"]
            theirs[f"{name}.fc2.weight"] = ours[f"{mine}.feed_forward.w_2.weight"][order]
            theirs[f"{name}.fc2.bias"] = ours[f"{mine}.feed_forward.w_2.bias"][order]
            norm(f"{mine}.feed_forward_norm", f"{name}.final_layer_norm")
    return theirs
