"""Runs of a workflow of four steps whose artifacts and records are real, made without Ray."""

from pathlib import Path

from pipeline.settings import Settings
from pipeline.store.artifact import Artifact, Context
from pipeline.store.store import LocalStore
from tests.support.tiny_runs import opening
from workflows.engine.dag import Stage, Step, in_order, resolved
from workflows.runs.record import Record, read_records
from workflows.runs.recorder import recording


class SeedSettings(Settings):
    """The setting in which runs differ."""

    seed: int


def write(context: Context, given: Artifact | None, settings: SeedSettings | str) -> Artifact:
    """Writes what `aiayn runs` has names for."""
    (context.folder / "metrics.jsonl").write_text("{}\n")
    (context.folder / "report.html").write_text(f"{settings}\n" * 100)
    return Artifact(context.folder)


TEXT, TRAIN = Stage("cleaning.clean", write, Artifact), Stage("training.train", write, Artifact, resumes=True)
AVERAGE, TABULATE = Stage("averaging.average", write, Artifact), Stage("tabulating.table", write, Artifact)


def table_of(seed: int) -> Step[Artifact]:
    """The last step of a workflow: a table of a model that was trained, with this seed, on the one text."""
    trained = TRAIN("train en-de base", TEXT("clean en-de", None, "text"), SeedSettings(seed=seed))
    return TABULATE("table 2", AVERAGE("average en-de base", trained, "last"), "table")


def make(store: LocalStore, target: Step[Artifact]) -> list[str]:
    """Makes what is missing of a step and its inputs, and returns the labels of that."""
    made = []
    for step in in_order([target]):
        if store.find(step.name) is None:
            described = {
                "label": step.label,
                "fingerprint": step.fingerprint,
                "inputs": {needed.label: needed.fingerprint for needed in step.inputs},
            }
            arguments = resolved(step.arguments, lambda needed: needed.published(store))
            with store.lock(step.name, step.label) as lock:
                assert lock.take() is None
                store.publish(
                    step.name,
                    lambda folder, step=step, given=arguments: step.stage.function(Context(folder), *given),
                    described,
                    ours=lock.is_ours,
                )
            made.append(step.label)
    return made


def run_table(store: LocalStore, seed: int, profile: str = "embedded") -> Record:
    """Runs the workflow, with its record, and returns that."""
    target = table_of(seed)
    with recording(store, opening(target.fingerprint, profile=profile), in_order([target])) as recorder:
        make(store, target)
        recorder.made(target.name, {"BLEU": 80.0 + seed})
    return read_records(store)[0]


def half_make(store: LocalStore, name: str) -> Path:
    """Leaves the folder in which an artifact was being made by a process that is gone."""
    folder = store.scratch(name)
    folder.mkdir()
    (folder / "half").write_text("half")
    return folder


def listing(root: Path) -> dict[str, str]:
    """All files and links below a folder with what they hold; locks apart, whose times change."""
    found = {}
    for path in root.rglob("*"):
        if ".locks" not in path.parts:
            text = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
            found[str(path.relative_to(root))] = text
    return found


def dangling(root: Path) -> list[Path]:
    """The links below a folder that lead nowhere."""
    return [path for path in root.rglob("*") if path.is_symlink() and not path.exists()]
