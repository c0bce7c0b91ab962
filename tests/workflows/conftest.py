"""A finished cell of Table 2, and the artifact folders of cells and rows, written as their stages would write them."""

import contextlib
import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from model.config import TransformerConfig
from pipeline.artifacts import Checkpoint, EvaluationSet, Hypotheses, Scores, TrainingRun
from pipeline.context import Context
from pipeline.evaluation import costs, scoring
from pipeline.evaluation.perplexity import Perplexity, PerplexityRecord
from pipeline.records import AveragingRecord, DecodingRecord, ScoringRecord
from pipeline.settings import AveragingSettings, DecodingSettings
from pipeline.text.lines import write_lines
from tests.support.parallel_text import corpus_of, set_of
from tests.support.tiny_profile import TABLE_2, MadeTable2, overrides
from tests.support.tiny_records import CONFIG, TRAINING, trained_on
from workflows import reproduce_table2
from workflows.cli.reproduce import reproduce
from workflows.paper import TABLE_3
from workflows.profiles.profile import Recipe
from workflows.profiles.translation import WMT14
from workflows.tables.measured import Cell, Measured, measured
from workflows.tables.table3 import RowTrainings

ENGLISH = ["The old house stands on the hill.", "A well-known man reads <b>two</b> books.", "She sleeps & dreams."]
GERMAN = [
    "Das alte Haus steht auf dem Hügel.",
    "Ein gut-bekannter Mann liest „zwei“ Bücher.",
    "Sie schläft und träumt.",
]
TRANSLATED = ["Das alte Haus steht auf dem Berg.", "Ein gut-bekannter Mann liest zwei <b>Bücher</b>.", GERMAN[2]]


@pytest.fixture(scope="session")
def made_table2(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> MadeTable2:
    """EN-DE base of `tests.support.tiny_profile`, trained once per session. Tests that change it must copy it."""
    store, printed = tmp_path_factory.mktemp("made_table2") / "runs", io.StringIO()
    with contextlib.redirect_stdout(printed):
        reproduce(*reproduce_table2.main(overrides=overrides(TABLE_2), pairs="en-de", models="base", store=store))
    return MadeTable2(store, printed.getvalue())


@pytest.fixture
def copy_of_table2(made_table2: MadeTable2, tmp_path: Path) -> MadeTable2:
    return made_table2.copied(tmp_path / "runs")


@pytest.fixture(scope="session")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Measured]:
    """Writes the artifacts of a small run: `cell("en-de", "base")`. Costs and scores are computed.

    `cell("en-de", "A1", split="dev", seed=2)` writes a row of Table 3, scored on the dev set without averaging. Dev
    perplexity falls by the fraction `last_fall` over the last tenth of the updates.
    """

    scored: dict[tuple[str, ...], ScoringRecord] = {}  # by texts, since intervals take a second to resample

    def score(folder: Path, hypotheses: Hypotheses, text: EvaluationSet) -> Scores:
        files = (hypotheses.path(text), text.references)
        key = (files[0].name, *(path.read_text(encoding="utf-8") for path in files))
        if key not in scored:
            scored[key] = scoring.score(Context(folder), hypotheses, text).load()
        return Scores(folder).write(scored[key])

    def build(
        pair: str,
        model: str,
        device_name: str = "a small CPU",
        *,
        split: str = "",
        seed: int = 1,
        config: TransformerConfig = CONFIG,
        parameters: int = 1_400_000,
        train_s: float = 100.0,
        dev_perplexity: float = 7.389,
        last_fall: float = 0.0,
        references: Sequence[str] = GERMAN,
        translated: Sequence[str] = TRANSLATED,
        data: str = "three sentences",
    ) -> Measured:
        root = tmp_path_factory.mktemp(model)

        def folder(name: str) -> Path:
            (root / name).mkdir()
            return root / name

        languages, averaged = (pair[:2], pair[3:]), [400] if split else [300, 400]
        pairs = list(zip(ENGLISH, references, strict=True))
        corpus = corpus_of(folder("corpus"), pairs, languages)
        names = [split] if split else ["test_a", "test_b"]
        test_sets = [set_of(folder(name), pairs, name, languages) for name in names]

        run = TrainingRun(folder("run"))
        settings = TRAINING.settings.model_copy(update={"model": config, "seed": seed})
        run.write(trained_on(device_name, train_s=train_s, settings=settings, parameters=parameters))
        run.write_json("manifest.json", {"started": "2026-11-29T00:00:00+00:00", "seconds": train_s + 2})
        lines = []
        for update in (*range(50, 351, 50), 360, 400):
            # Flat from update 250 on, except in the last tenth
            loss = 6 - min(update, 250) / 100 + (math.log1p(-last_fall) if update == 400 else 0)
            shared = {"update": update, "train_s": update / 4}
            lines.append({**shared, "epoch": 1, "loss": loss, "nll": loss, "learning_rate": update * 1e-6})
            lines.append({**shared, "dev_loss": loss, "dev_nll": loss, "dev_perplexity": math.exp(loss)})
        write_lines(run.folder / "metrics.jsonl", map(json.dumps, lines))

        checkpoint = Checkpoint(folder("checkpoint"))
        checkpoint.write_json("model.json", config.__dict__)
        checkpoint.write(AveragingRecord(updates=averaged))
        decoded = DecodingRecord(sentences=3, seconds=0.5, tokens=20, settings=DecodingSettings(), dtype="float32")
        hypotheses = Hypotheses(folder("hypotheses")).write(decoded)
        scores = []
        for name, text in zip(names, test_sets, strict=True):
            write_lines(hypotheses.path(text), translated)
            scores.append(score(folder(f"scores {name}"), hypotheses, text))
        fields = {"dev_nll": math.log(dev_perplexity), "dev_perplexity": dev_perplexity, "tokens": 60}
        perplexity = Perplexity(folder("perplexity")).write(PerplexityRecord(**fields, dev_accuracy=0.5))
        recipe, cost = Recipe(training=settings, averaging=AveragingSettings(last=1)), Context(folder("cost"))
        names_of = {"pair": pair, "model": model, "data": data, "recipe": recipe}
        names_of["text_settings"] = (WMT14.cleaning, WMT14.vocabulary, WMT14.encoding)
        trained = {"corpus": corpus, "training": run, "checkpoint": checkpoint, "test_set": test_sets[0]}
        results = {"perplexity": perplexity, "cost": costs.count(cost, run), "scores": tuple(scores)}
        return measured(Cell(**names_of, **trained, hypotheses=hypotheses, **results))

    return build


@pytest.fixture(scope="session")
def trained_row(cell: Callable[..., Measured]) -> Callable[..., RowTrainings]:
    """Writes a row of Table 3 trained with seeds 1 and 2: `trained_row("A1", 5.1, 5.3, errors=(1, 2))`.

    The numbers are dev perplexities; `errors` are the numbers of wrong words in the translations, which lower BLEU.
    """
    first = GERMAN[0].split()

    def build(
        name: str, *perplexities: float, errors: Sequence[int] = (1,), pair: str = "en-de", **more: Any
    ) -> RowTrainings:
        trainings = []
        for seed, perplexity in enumerate(perplexities, start=1):
            wrong = errors[(seed - 1) % len(errors)]
            translated = [" ".join([*first[: len(first) - wrong], *["falsch"] * wrong]), *GERMAN[1:]]
            options = {"seed": seed, "dev_perplexity": perplexity, "translated": translated, **more}
            trainings.append(cell(pair, name, split="dev", **options).cell)
        difference = next((variation.difference for variation in TABLE_3 if variation.name == name), {})
        return RowTrainings(name, difference, tuple(trainings))

    return build
