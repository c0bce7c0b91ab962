"""Models that CTranslate2 and MarianMT cannot express are refused by name."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from model.architectures import make_model
from model.config import TransformerConfig
from pipeline.errors import UserError
from pipeline.export.transformer import load_transformer
from pipeline.training.checkpoints import write_weights
from tests.support.half_trained import TINY
from tests.support.tiny_checkpoint import make_checkpoint


@pytest.mark.parametrize(
    ("libraries", "difference", "message"),
    [
        ("CTranslate2 MarianMT", {"d_k": 8}, "d_k 8 and d_v 16"),
        ("MarianMT", {"d_k": 8, "d_v": 8}, "d_k 8 and d_v 8, which must be 16"),
        ("CTranslate2 MarianMT", {"attention_window": 5}, "attention_window 5"),
        ("CTranslate2 MarianMT", {"architecture": "recurrent", "n_layers": 2}, "recurrent model"),
    ],
)
def test_what_a_library_lacks(tmp_path: Path, libraries: str, difference: dict[str, Any], message: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    config: TransformerConfig = dataclasses.replace(TINY, **difference)
    write_weights(checkpoint.folder, make_model(config).state_dict(), dataclasses.asdict(config))
    for library in ("CTranslate2", "MarianMT"):
        if library in libraries.split():
            with pytest.raises(UserError, match=f"{library} has no {message}.*; translate with aiayn"):
                load_transformer(checkpoint, library)
        else:
            load_transformer(checkpoint, library)
