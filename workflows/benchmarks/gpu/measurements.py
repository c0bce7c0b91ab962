"""What the steps of `make gpu` measure. Each function saves its figures in `Workplace.save` as it goes.

They import nothing but torch, sentencepiece, sacrebleu, sacremoses, pyarrow, safetensors, pydantic, rich and typer.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from model.config import TransformerConfig
from pipeline.corpora import embedded, multi30k
from pipeline.errors import UserError
from pipeline.settings import (
    AveragingSettings,
    CleaningSettings,
    DecodingSettings,
    EncodingSettings,
    VocabularySettings,
)
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, Corpus, EncodedDataset, TrainingRun
from workflows.benchmarks import training
from workflows.benchmarks.gpu.results import StepResult
from workflows.profiles import MULTI30K

ROOT = Path(__file__).parents[3]
TESTS = ("tests/model", "tests/pipeline/training/test_on_devices.py")
"""Where the tests with the marker `gpu` are that need neither Ray nor MLflow."""
QUICK_TESTS = (TESTS[0] + "/test_dropout.py", TESTS[1] + "::test_batches_read_ahead_arrive_on_the_device")
RATE_TRIALS = 5
TINY = TransformerConfig(vocabulary_size=300, n_layers=1, d_model=32, d_ff=64, n_heads=2, d_k=16, d_v=16)
TEXT_S = 240.0
"""Time after which the training on text stops, if it has not done all its updates."""
TEXT_UPDATES = 150
"""Updates between two looks at the clock: those between two checkpoints of the recipe."""
BATCH_TOKENS = (4096, 16384, 65536)
"""Batch sizes at which decoding is timed."""
COMPARED_SENTENCES = 500


class SkipStepError(Exception):
    """The step cannot run here; the message says why."""


@dataclass(frozen=True)
class Workplace:
    """Where a step runs and what it writes."""

    result: StepResult
    folder: Path
    device: str
    """cpu or cuda."""
    quick: bool
    """Use tiny sizes, to try the steps themselves in seconds."""
    data: Path | None
    """Folder of real text with `multi30k/`, or None."""

    def save(self, **figures: Any) -> None:
        """Adds figures to the step's file."""
        self.result.figures.update(figures)
        self.result.write(self.folder)

    def work_folder(self, name: str) -> Path:
        """Returns an empty folder below the results for what only the steps themselves read."""
        path = self.folder / "work" / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path


def measure_rate(place: Workplace) -> None:
    """Measures large matrix products in float32 and bfloat16, and whether layers compile."""
    import torch

    from pipeline.hardware import compiles, device_name, dtype_name, matmul_flop_s

    place.save(device_name=device_name(place.device), torch=torch.__version__)
    if place.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        place.save(memory_gb=properties.total_memory / 1e9, multiprocessors=properties.multi_processor_count)
    rates: dict[str, list[float]] = {}
    for dtype in (torch.bfloat16, torch.float32):
        name = dtype_name(dtype)
        rates[name] = [matmul_flop_s(place.device, dtype) for _ in range(1 if place.quick else RATE_TRIALS)]
        place.save(matmul_flop_s=rates)
    place.save(compiles=compiles(place.device))


def run_tests(place: Workplace) -> None:
    """Runs the tests marked `gpu`: on the GPU alone if there is one. Raises UserError if one fails."""
    import torch

    report = place.folder / "tests.xml"
    on_gpu = place.device == "cuda" and torch.cuda.is_available()
    # On a CPU compiling takes minutes; a GPU's share alone is what `make test` has not run.
    choice = ["-m", "gpu", "-k", "cuda"] if on_gpu else ["-m", "gpu and not slow"]
    paths = QUICK_TESTS if place.quick else TESTS
    command = [sys.executable, "-m", "pytest", "-q", *choice, f"--junitxml={report}", *paths]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if not report.exists():
        raise UserError(f"pytest ended with status {status} before it ran a test; see tests.log")
    cases = list(ElementTree.parse(report).iter("testcase"))
    failures = [
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skips = [skip.get("message", "") for case in cases for skip in case.findall("skipped")]
    place.save(
        passed=len(cases) - len(failures) - len(skips),
        failed=len(failures),
        skipped=len(skips),
        failures=failures,
        skips=list(dict.fromkeys(skips)),
    )
    if status:
        raise UserError(f"{len(failures)} tests failed; see tests.log")


def measure_training(place: Workplace, size: str, micro_batches: int, compiled: bool) -> None:
    """Runs `aiayn bench train` on our loop alone, with a profile."""
    chosen = training.SIZES[size]
    if place.quick:
        budget = 300 * micro_batches
        chosen = replace(chosen, model=TINY, lengths="multi30k", cpu_batch_tokens=budget, gpu_batch_tokens=budget)
    name = place.result.step
    rounds_file = place.folder / f"{name}.rounds.jsonl"
    rounds_file.unlink(missing_ok=True)
    options = training.TrainingOptions(
        device="gpu" if place.device == "cuda" else "cpu",
        rounds=1 if place.quick else 3,
        updates=1 if place.quick else 20,
        with_peers=False,
        micro_batches=micro_batches,
        compiled=compiled,
        profile=place.folder / f"{name}.trace.json.gz",
        rounds_file=rounds_file,
    )
    place.save(**training.measure(chosen, options, lambda line: print(line, flush=True)))


def train_on_text(place: Workplace) -> None:
    """Trains the recipe of profile multi30k for a few minutes, averages its checkpoints, and scores a test set."""
    from pipeline.evaluation import perplexity
    from pipeline.evaluation.averaging import average
    from pipeline.evaluation.scoring import score_texts
    from pipeline.evaluation.translation import Translator
    from pipeline.text.aligned import read_references
    from pipeline.training.loop import Training
    from pipeline.training.worker_group import WorkerGroup

    corpus, dataset = _prepare(place)
    settings = MULTI30K.recipes["base"].training.model_copy(update={"workers": 1, "threads": os.cpu_count() or 1})
    model = replace(settings.model, vocabulary_size=dataset.read_json("dataset.json")["vocabulary_size"])
    changes: dict[str, Any] = {"model": model}
    if place.quick:
        changes = {"model": replace(TINY, vocabulary_size=model.vocabulary_size), "updates": 4, "budget_tokens": 400}
        changes |= {"checkpoint_updates": 2, "validation_updates": 2}
    settings = settings.model_copy(update=changes)
    run = TrainingRun(place.work_folder("run"))
    work = Training(WorkerGroup(device=place.device), dataset, settings, run.folder)
    began_s = time.monotonic()
    with work.writer:
        work.resume()
        while work.state.update < settings.updates and time.monotonic() - began_s < TEXT_S:
            work.train(until=work.state.update + TEXT_UPDATES)
            place.save(updates=work.state.update, train_s=work.state.train_s)
    figures = work.described(loop_s=time.monotonic() - began_s)
    run.write(figures)
    shutil.copyfile(dataset.folder / "joint.model", run.folder / "joint.model")
    place.save(dtype=figures.dtype, target_tokens=figures.target_tokens, counted_flop=figures.counted_flop)
    averaging = AveragingSettings(last=min(AveragingSettings().last, len(figures.checkpoints)))
    checkpoint = average(Context(place.work_folder("checkpoint")), run, averaging)
    measured = perplexity.measure(Context(place.work_folder("perplexity"), device=place.device), checkpoint, dataset)
    place.save(dev_perplexity=measured.load().dev_perplexity)
    name = corpus.test_sets[0]
    sources = _sources(corpus, name)
    began_s = time.monotonic()
    translator = Translator(checkpoint.folder, DecodingSettings(), place.device)
    translations = translator.translate(sources)
    scores = score_texts(translations, read_references(corpus, name), corpus.languages[1])
    place.save(test_set=name, decode_s=time.monotonic() - began_s, **scores.model_dump())


def _prepare(place: Workplace) -> tuple[Corpus, EncodedDataset]:
    """Prepares Multi30k from the data folder, else generated text."""
    from pipeline.text import cleaning, encoding, vocabulary

    def context(name: str) -> Context:
        return Context(place.work_folder(name))

    if place.data and (place.data / "multi30k").is_dir() and not place.quick:
        place.save(text="Multi30k")
        corpus = multi30k.read(context("text"), multi30k.Multi30kSettings(data=place.data / "multi30k"))
    else:
        place.save(text="generated text")
        sizes = {"train_pairs": 600, "dev_pairs": 20, "test_pairs": 20} if place.quick else {"train_pairs": 24_000}
        corpus = embedded.generate(context("text"), embedded.EmbeddedSettings.model_validate(sizes))
    corpus = cleaning.clean(context("clean"), corpus, CleaningSettings())
    pieces = VocabularySettings(size=400 if place.quick else MULTI30K.vocabulary.size)
    learned = vocabulary.learn(context("vocabulary"), corpus, pieces)
    return corpus, encoding.encode(context("encoded"), corpus, learned, EncodingSettings())


def _sources(corpus: Corpus, name: str) -> list[str]:
    from pipeline.text.lines import read_lines

    return [line for shard in corpus.shards(name) for line in read_lines(shard.source)]


def measure_decoding(place: Workplace) -> None:
    """Times beam search with the model of step `text`, and compares its outputs with the CPU's in float32."""
    import torch

    from pipeline.evaluation.translation import Translator
    from pipeline.text.segmentation import encode_lines
    from pipeline.text.vocabulary import load

    checkpoint = Checkpoint(place.folder / "work" / "checkpoint")
    if not (checkpoint.folder / "joint.model").exists():
        raise SkipStepError("it needs the model of step text")
    corpus = Corpus(place.folder / "work" / "clean")
    sources = _sources(corpus, corpus.test_sets[0])
    rates: list[dict[str, Any]] = []
    for precision in ("bfloat16", "float32"):
        for batch_tokens in BATCH_TOKENS[: 1 if place.quick else None]:
            settings = DecodingSettings.model_validate({"precision": precision, "batch_tokens": batch_tokens})
            translator = Translator(checkpoint.folder, settings, place.device)
            translator.translate(sources)
            began_s = time.perf_counter()
            translations = translator.translations(sources)
            seconds = time.perf_counter() - began_s
            tokens_s = sum(translation.n_tokens for translation in translations) / seconds
            rates.append(
                {
                    "precision": precision,
                    "batch_tokens": batch_tokens,
                    "sentences_s": len(sources) / seconds,
                    "tokens_s": tokens_s,
                }
            )
            place.save(sentences=len(sources), rates=rates)
    exact = DecodingSettings(precision="float32")
    ids = encode_lines(load(checkpoint.folder / "joint.model"), sources[:COMPARED_SENTENCES])
    torch.set_num_threads(os.cpu_count() or 1)
    ours, cpus = (
        [found[0] for found in Translator(checkpoint.folder, exact, device).search(ids)]
        for device in (place.device, "cpu")
    )
    equal = [(mine, other) for mine, other in zip(ours, cpus, strict=True) if mine.tokens == other.tokens]
    differences = [abs(mine.log_probability - other.log_probability) for mine, other in equal]
    place.save(
        same_as_cpu={
            "sentences": len(ids),
            "equal": len(equal),
            "log_probability_difference": max(differences, default=0.0),
        }
    )
