"""JSON artifacts: content reads back as it was written, other versions' files are read, a broken file is one line."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import JsonArtifact
from pipeline.store.artifacts import Checkpoint, Scores, TrainingRun
from pipeline.store.figures import BleuScores, RecordedTraining, ScoringFigures
from tests.support.tiny_figures import CONFIG, TRAINING

RELEASED: dict[str, Any] = {
    "settings": {
        "model": {
            "vocabulary_size": 1500,
            "n_layers": 2,
            "d_model": 144,
            "d_ff": 576,
            "n_heads": 4,
            "d_k": 36,
            "d_v": 36,
            "dropout": 0.0,
            "positions": "sinusoidal",
            "max_positions": 1024,
        },
        "optimizer": {
            "beta_1": 0.9,
            "beta_2": 0.98,
            "epsilon": 1e-09,
            "warmup_steps": 200,
            "learning_rate_scale": 0.35,
            "label_smoothing": 0.1,
        },
        "updates": 1050,
        "budget_tokens": 400,
        "micro_batches": 1,
        "seed": 1,
        "precision": "auto",
        "exact_reduction": False,
        "checkpoint_updates": 50,
        "keep_checkpoints": 5,
        "validation_updates": 150,
        "log_updates": 10,
        "workers": 1,
        "threads": 1,
        "device": "auto",
    },
    "updates": 1050,
    "epochs": 0.6461538461538462,
    "train_s": 133.02769199000096,
    "checkpoint_s": 0.3795959719997768,
    "source_tokens": 356605,
    "target_tokens": 410882,
    "padding_fraction": 0.003591027883046216,
    "workers": 1,
    "threads": 1,
    "devices": 1,
    "device_name": "Intel(R) Xeon(R) Processor",
    "dtype": "bfloat16",
    "matmul_flop_s": 64228714706.374306,
    "counted_flop": 3261712402944.0,
    "parameters": 1382976,
    "checkpoints": [850, 900, 950, 1000, 1050],
    "loop_s": 143.703740223,
}
"""A run.json that version 0.1.0 wrote."""


@dataclass(frozen=True)
class Pair:
    left: int
    right: tuple[str, ...] = ()


class PairArtifact(JsonArtifact[Pair]):
    figures_file = "pair.json"


def test_a_dataclass_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """Nested types come back as declared: a tuple is a list in the file and a tuple again in memory."""
    artifact = PairArtifact(tmp_path)
    artifact.write(Pair(3, ("a", "b")))
    assert json.loads((tmp_path / "pair.json").read_text()) == {"left": 3, "right": ["a", "b"]}
    assert artifact.load() == Pair(3, ("a", "b"))


def test_a_file_of_the_released_version_is_rewritten_as_it_was(tmp_path: Path) -> None:
    """Keys, their order and their values stay what version 0.1.0 wrote; newer settings have their
    defaults and newer figures follow, empty."""
    run = TrainingRun(tmp_path)
    run.write_json("run.json", RELEASED)
    run.write(run.load())
    newer = {"torch_version": None, "compiled": None, "stretches": []}
    sizes = {"attention_window": 0, "attention_dropout": 0.0}
    model = {**RELEASED["settings"]["model"], **sizes}  # type: ignore[dict-item]
    changed = {**RELEASED["settings"], "model": model, "compiled": True}
    settings = {}
    for name, value in changed.items():
        settings |= {name: value} | ({"exchange": "float32"} if name == "exact_reduction" else {})
    assert json.dumps(run.read_json("run.json")) == json.dumps({**RELEASED, "settings": settings, **newer})


def test_optional_figures_may_be_missing_and_unknown_ones_are_passed_over(tmp_path: Path) -> None:
    """Files of older and of newer versions: figures and settings at every depth."""
    older = {name: value for name, value in RELEASED.items() if name not in ("checkpoint_s", "loop_s")}
    settings = {**RELEASED["settings"], "colour": "red"}
    newer = {**older, "energy_j": 5.0, "settings": {**settings, "model": {**settings["model"], "gates": 2}}}
    run = TrainingRun(tmp_path)
    run.write_json("run.json", newer)
    figures = run.load()
    assert (figures.loop_s, figures.checkpoint_s, figures.updates) == (None, None, 1050)
    assert figures.settings.model.d_model == 144
    assert not hasattr(figures, "energy_j")


@pytest.mark.parametrize("workers", [3, (2, 8)])
def test_settings_are_recorded_as_they_are(workers: int | tuple[int, int]) -> None:
    """Settings passed as an object are kept, a range of workers included."""
    settings = TrainingSettings(model=CONFIG, workers=workers, seed=7)
    recorded = RecordedTraining.model_validate(settings)
    assert dict(recorded) == dict(settings)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"devices": None}, r"run\.json is not valid \(devices: Input should be a valid integer\)"),
        ({"settings": {"model": {"d_model": 3}}}, r"is not valid \(settings\.model: d_model is 3; sinusoids come in"),
    ],
)
def test_a_figure_that_is_not_valid_is_one_line(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    """The line names the file, the figure, what is wrong with it, and what to do."""
    TrainingRun(tmp_path).write_json("run.json", {**RELEASED, **changed})
    with pytest.raises(UserError, match=message) as caught:
        TrainingRun(tmp_path).load()
    assert str(caught.value).endswith(f"; remove {tmp_path} and make it again")
    assert "\n" not in str(caught.value)


def test_a_missing_figure_is_one_line(tmp_path: Path) -> None:
    """It is named with its place in the file."""
    run, scores = TrainingRun(tmp_path), Scores(tmp_path)
    run.write_json("run.json", {name: value for name, value in RELEASED.items() if name != "devices"})
    with pytest.raises(UserError, match=rf"^{tmp_path}/run\.json has no 'devices'; remove {tmp_path} and make it"):
        run.load()
    scores.write_json("scores.json", {"test_sets": {"test": {"paper_bleu": 1.0}}, "language": "de"})
    with pytest.raises(UserError, match=r"scores\.json has no 'test_sets\.test\.sacrebleu'"):
        scores.load()


def test_summaries_come_from_the_figures(tmp_path: Path) -> None:
    """They are what a workflow shows when a stage is done."""
    run, scores = TrainingRun(tmp_path), Scores(tmp_path)
    run.write(TRAINING)
    assert run.summary == "400 updates, 0.80 M target tokens"
    bleu = BleuScores(paper_bleu=27.345, sacrebleu=26.0, signature="", sentences=3)
    scores.write(ScoringFigures(test_sets={"test": bleu}, language="de"))
    assert scores.summary == "test: paper BLEU 27.34, sacreBLEU 26.00"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 3}, "d_model is 3; sinusoids come in pairs"),
        ({"d_ff": 12.5}, "d_ff: Input should be a valid integer"),
        ({"norm_first": True}, "this version knows no norm_first"),
        ([1], "Input should be a dictionary"),
    ],
)
def test_a_configuration_that_is_no_model_s_is_one_line(tmp_path: Path, fields: Any, message: str) -> None:
    """A field that this version does not know may change what the weights mean, so it is refused."""
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write_json("model.json", CONFIG.__dict__)
    assert checkpoint.config == CONFIG
    checkpoint.write_json("model.json", {**CONFIG.__dict__, **fields} if isinstance(fields, dict) else fields)
    with pytest.raises(UserError, match=message) as caught:
        _ = checkpoint.config
    assert "\n" not in str(caught.value)
