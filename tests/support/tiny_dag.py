"""Runs of a five-step workflow with real artifacts, names and locks, without Ray."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipeline.context import Context
from pipeline.settings import Settings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.command_line import CommandLine
from workflows.engine.dag import Stage, Step, in_order, resolved
from workflows.runs import begun


class SeedSettings(Settings):
    seed: int


@dataclass(frozen=True)
class TinyScores(Artifact):
    record_file: ClassVar[str] = "scores.json"


def write(context: Context, before: Artifact | None, settings: SeedSettings | str) -> Artifact:
    for file in ("model.safetensors", "run.json", "metrics.jsonl"):
        (context.folder / file).write_text("{}\n")
    return Artifact(context.folder)


def tabulate(context: Context, scores: Artifact, command: CommandLine) -> Artifact:
    (context.folder / "report.html").write_text(f"{command.typed}\n" * 100)
    return Artifact(context.folder)


def score(context: Context, model: Artifact, settings: SeedSettings) -> TinyScores:
    TinyScores(context.folder).write_json("scores.json", {"test": {"bleu": 80.5 + settings.seed, "signature": "x"}})
    return TinyScores(context.folder)


TEXT, TRAIN = Stage("files.read", write, Artifact), Stage("training.train", write, Artifact, trains=True)
AVERAGE, TABULATE = Stage("averaging.average", write, Artifact), Stage("tabulating.table", tabulate, Artifact)
SCORE = Stage("scoring.score", score, TinyScores)


def table_of(seed: int) -> Step[Artifact]:
    settings = SeedSettings(seed=seed)
    trained = TRAIN("train en-de base", TEXT("read en-de", None, "text"), settings)
    scored = SCORE("score en-de base", AVERAGE("average en-de base", trained, "last"), settings)
    return TABULATE("table 2", scored, CommandLine(typed=f"python -m workflows.reproduce_table2 --seed {seed}"))


def make(store: Store, target: Step[Artifact]) -> list[str]:
    labels = []
    for step in in_order([target]):
        if store.find(step.name) is None:
            described = {
                "label": step.label,
                "stage": step.stage.name,
                "fingerprint": step.fingerprint,
                "inputs": [{"label": needed.label, "fingerprint": needed.fingerprint} for needed in step.inputs],
                "settings": [each.model_dump() for each in step.arguments if isinstance(each, Settings)],
                "libraries": {"torch": "2.11"},
            }
            arguments = resolved(step.arguments, lambda needed: needed.published(store))
            with store.lock(step.name, step.label) as lock:
                assert lock.take() is None
                store.publish(
                    step.name,
                    lambda folder: step.stage.function(Context(folder), *arguments),  # noqa: B023
                    described,
                    holds_lock=lock.is_ours,
                )
            labels.append(step.label)
    return labels


def run_table(store: Store, seed: int, profile: str = "embedded", **settings: Any) -> Path:
    target, command = table_of(seed), f"python -m workflows.reproduce_table2 --seed {seed}"
    works = store.find(target.name) is None
    with begun(store, "table2", profile, target, works=works, command=command, settings=settings) as run:
        make(store, target)
        run.finish(store, target.published(store), {"BLEU": 80.5 + seed}, {})
    return run.folder


def half_make(store: Store, name: str) -> Path:
    folder = store.scratch(name)
    folder.mkdir()
    (folder / "half").write_text("half")
    return folder


def listing(root: Path) -> dict[str, str]:
    contents = {}
    for path in root.rglob("*"):
        if ".locks" not in path.parts:
            text = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
            contents[str(path.relative_to(root))] = text
    return contents
