"""Artifact folders of a small cell of Table 2, as its stages would write them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from model.config import TransformerConfig
from pipeline import costs, scoring
from pipeline.artifacts import Artifact, Checkpoint, Context, Corpus, Hypotheses, TrainingRun
from pipeline.lines import write_lines
from pipeline.settings import DecodingSettings, TrainingSettings
from workflows.measured import MeasuredInputs

ENGLISH = ["The old house stands on the hill.", "A well-known man reads <b>two</b> books.", "She sleeps & dreams."]
GERMAN = [
    "Das alte Haus steht auf dem Hügel.",
    "Ein gut-bekannter Mann liest „zwei“ Bücher.",
    "Sie schläft und träumt.",
]
TRANSLATED = [
    "Das alte Haus steht auf dem Berg.",
    "Ein gut-bekannter Mann liest zwei <b>Bücher</b>.",
    "Sie schläft und träumt.",
]


@pytest.fixture
def cell(tmp_path: Path) -> Callable[..., MeasuredInputs]:
    """`cell("en-de", "base")` -> the artifacts of a small training of that model; costs and scores are computed."""

    def folder(*parts: str) -> Path:
        path = tmp_path.joinpath(*parts)
        path.mkdir(parents=True)
        return path

    def build(pair: str, model: str, device_name: str = "a small CPU") -> MeasuredInputs:
        languages = pair[:2], pair[3:]
        corpus = Corpus(folder(pair, model, "corpus"))
        for split in ("train", "dev", "test_a", "test_b"):
            (corpus.folder / split).mkdir()
            for language, lines in zip(languages, (ENGLISH, GERMAN), strict=True):
                write_lines(corpus.shard_path(split, 0, language), lines)
        corpus.describe(
            (languages[0], languages[1]), {split: [3] for split in ("train", "dev", "test_a", "test_b")}, {}
        )

        config = TransformerConfig(vocabulary_size=800, n_layers=2, d_model=128, d_ff=512)
        run = TrainingRun(folder(pair, model, "run"))
        settings = TrainingSettings(model=config, updates=400, budget_tokens=2000)
        figures = {"updates": 400, "epochs": 3.5, "train_s": 100.0, "source_tokens": 780_000, "target_tokens": 800_000}
        figures |= {"padding_fraction": 0.04, "workers": 2, "threads": 1, "devices": 2, "device_name": device_name}
        figures |= {"dtype": "float32", "matmul_flop_s": 5e10, "counted_flop": 3.1e12, "parameters": 1_400_000}
        run.write_json("run.json", {"settings": settings.model_dump(mode="json"), **figures, "checkpoints": [300, 400]})
        lines = []
        for update in range(50, 401, 50):
            loss = 6 - update / 100
            shared = {"update": update, "train_s": update / 4}
            lines.append({**shared, "epoch": 1, "loss": loss, "nll": loss, "learning_rate": update * 1e-6})
            lines.append({**shared, "dev_loss": loss, "dev_nll": loss, "dev_perplexity": 2.718**loss})
        write_lines(run.folder / "metrics.jsonl", map(json.dumps, lines))

        checkpoint = Checkpoint(folder(pair, model, "checkpoint"))
        checkpoint.write_json("model.json", config.__dict__)
        checkpoint.write_json("averaging.json", {"updates": [300, 400]})
        hypotheses = Hypotheses(folder(pair, model, "hypotheses"))
        for name in corpus.test_sets:
            write_lines(hypotheses.folder / f"{name}.{languages[1]}", TRANSLATED)
        decoding = {"settings": DecodingSettings().model_dump(mode="json"), "dtype": "float32"}
        hypotheses.write_json("decoding.json", decoding)
        perplexity = Artifact(folder(pair, model, "perplexity"))
        perplexity.write_json("perplexity.json", {"dev_nll": 2.0, "dev_perplexity": 7.389, "tokens": 60})
        return MeasuredInputs(
            pair,
            model,
            "three sentences",
            corpus,
            run,
            checkpoint,
            hypotheses,
            scoring.score(Context(folder(pair, model, "scores")), hypotheses, corpus),
            perplexity,
            costs.count(Context(folder(pair, model, "cost")), run),
        )

    return build
