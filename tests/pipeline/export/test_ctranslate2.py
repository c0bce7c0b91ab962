"""pipeline.export.ctranslate2: a checkpoint and its export give the same log-probabilities and outputs."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from model.config import BEGIN_ID, END_ID, PAD_ID, TransformerConfig
from model.search import beam_search
from model.transformer import Transformer
from pipeline.errors import UserError
from pipeline.export.ctranslate2 import SAME_SEARCH, export_ctranslate2
from pipeline.text import vocabulary
from pipeline.training.checkpoints import write_weights
from tests.support.batches import hidden_of
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint, make_corpus

ctranslate2 = pytest.importorskip("ctranslate2")
KNOWN = [line for line in SENTENCES if line.strip()]
LINES = [*KNOWN, "A dög ."]
"""Test sentences; the last holds a character that the vocabulary lacks, or spells in bytes."""
TINY = TransformerConfig(60, n_layers=2, d_model=32, d_ff=48, n_heads=2, d_k=16, d_v=16, dropout=0.0)
MODELS: dict[str, dict[str, Any]] = {
    "sinusoids": {},
    "learned": {"n_layers": 1, "positions": "learned", "max_positions": 257},
    "bytes": {"byte_fallback": True},
}


def ids(processor: Any, lines: list[str]) -> torch.Tensor:
    sentences = [torch.tensor([*processor.encode(line), END_ID]) for line in lines]
    return pad_sequence(sentences, batch_first=True, padding_value=PAD_ID)


def shifted(target_BT: torch.Tensor) -> torch.Tensor:
    return F.pad(target_BT[:, :-1], (1, 0), value=BEGIN_ID)


def make_model(folder: Path, byte_fallback: bool = False, **more: Any) -> Transformer:
    """A checkpoint that has half learned to map each line to another: its outputs vary, and most of them end."""
    make_checkpoint(folder, make_corpus(folder.with_name("corpus")), byte_fallback)
    processor = vocabulary.load(folder / "joint.model")
    source_BS = ids(processor, KNOWN)
    target_BT = source_BS.roll(1, dims=0)
    torch.manual_seed(4)
    model = Transformer(dataclasses.replace(TINY, vocabulary_size=len(processor), **more))
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = torch.tensor(torch.inf)
    while loss > 0.5:
        logits_BTV = model.logits(hidden_of(model, source_BS, shifted(target_BT)))
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), target_BT.flatten(), ignore_index=PAD_ID)
        adam.zero_grad()
        loss.backward()
        adam.step()
    write_weights(folder, model.state_dict(), dataclasses.asdict(model.config))
    return model.eval()


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Path]:
    """A model and the folder it was exported to."""
    folder = tmp_path_factory.mktemp("exported")
    model = make_model(folder / "checkpoint", **MODELS[request.param])
    export_ctranslate2(folder / "checkpoint", folder / "out")
    return model, folder / "out"


def translator(folder: Path, **more: Any) -> Any:
    return ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1, **more)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_same_outputs(exported: tuple[Transformer, Path], beam_size: int) -> None:
    """CTranslate2 outputs the pieces of our search; outputs that reach our limit, which it lacks, are not compared."""
    model, folder = exported
    processor = vocabulary.load(folder / "joint.model")
    source_BS = ids(processor, LINES)
    ours = [best for (best,) in beam_search(model, source_BS, beam_size=beam_size, length_penalty=0)]
    pieces = [processor.encode(line, out_type=str) for line in LINES]
    theirs = translator(folder).translate_batch(pieces, beam_size=beam_size, **SAME_SEARCH)
    compared = []
    for source, best, result in zip(pieces, ours, theirs, strict=True):
        if len(best.tokens) < len(source) + 50:
            assert [processor.id_to_piece(i) for i in best.tokens] == result.hypotheses[0]
            compared.append(tuple(best.tokens))
    assert len(compared) >= 4
    assert len(set(compared)) > 1


def test_same_log_probabilities(exported: tuple[Transformer, Path]) -> None:
    """Every token of the given outputs, END_ID included, has the same log-probability in a batch of unequal lengths."""
    model, folder = exported
    processor = vocabulary.load(folder / "joint.model")
    source_BS, target_BT = ids(processor, LINES), ids(processor, LINES[::-1])
    with torch.inference_mode():
        log_p_BTV = model.logits(hidden_of(model, source_BS, shifted(target_BT))).log_softmax(dim=-1)
    log_p_BT = log_p_BTV.gather(2, target_BT[:, :, None])[:, :, 0]
    pieces = [[processor.encode(line, out_type=str) for line in side] for side in (LINES, LINES[::-1])]
    for expected_T, target_T, result in zip(log_p_BT, target_BT, translator(folder).score_batch(*pieces), strict=True):
        assert result.log_probs == pytest.approx(expected_T[target_T != PAD_ID].tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        ({"d_k": 8}, "d_k 8 and d_v 16"),
        ({"attention_window": 5}, "no restricted self-attention, .* attention_window 5"),
    ],
)
def test_what_ctranslate2_cannot_express(difference: dict[str, int], message: str, tmp_path: Path) -> None:
    """Keys and values of different sizes (rows B of Table 3), and restricted attention, are refused in one line."""
    folder = tmp_path / "checkpoint"
    make_checkpoint(folder, make_corpus(tmp_path / "corpus"))
    config = dataclasses.replace(TINY, **difference)
    write_weights(folder, Transformer(config).state_dict(), dataclasses.asdict(config))
    with pytest.raises(UserError, match=message) as raised:
        export_ctranslate2(folder, tmp_path / "out")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()
