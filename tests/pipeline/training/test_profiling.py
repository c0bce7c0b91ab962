"""pipeline.training.profiling: a profile has the requested updates, and changes nothing else."""

import gzip
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pipeline.artifacts import EncodedDataset
from pipeline.context import ignore
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.build import Build
from pipeline.store.store import Store
from pipeline.training.loop import Training
from pipeline.training.workers import Workers
from pipeline.warning_events import emitting_warnings
from tests.support.s3_server import S3Server
from tests.support.tiny_training import metrics, train_as, train_in_processes, weights, with_fields
from workflows.profiles.changes import checked

pytestmark = [pytest.mark.spawns, pytest.mark.usefixtures("many_recoveries")]


def steps(trace: Path) -> list[str]:
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return [event["name"] for event in events if "ProfilerStep" in event.get("name", "")]


def train(
    dataset: EncodedDataset, folder: Path, profiled: tuple[int, int] | None, until: int | None = None
) -> list[str]:
    """Trains TINY with a profile, to its end or to an update, and returns the warnings."""
    events: list[dict[str, Any]] = []
    emitting_warnings(events.append, train_as, Workers(), dataset, with_fields(profile_updates=profiled), folder, until)
    return [event["warning"] for event in events]


def test_a_profile_of_two_workers(two_workers: Path, dataset: EncodedDataset, tmp_path: Path) -> None:
    """The table has rank 0's matrix products, the trace has each update, and the weights are bit-identical."""
    train_in_processes(2, dataset, with_fields(profile_updates=(4, 5)), tmp_path)
    assert weights(tmp_path) == weights(two_workers)
    assert metrics(tmp_path) == metrics(two_workers)
    assert {path.name for path in tmp_path.glob("profile-*")} == {"profile-4-5.txt", "profile-4-5.json.gz"}
    assert steps(tmp_path / "profile-4-5.json.gz") == ["ProfilerStep#4", "ProfilerStep#5"]
    table = (tmp_path / "profile-4-5.txt").read_text()
    assert table.startswith("updates 4 to 5, rank 0, ")
    products = next(line for line in table.splitlines() if line.split()[:1] == ["aten::mm"])
    assert int(products.split()[-1]) % 2 == 0, "products must divide evenly among two updates"


def test_a_run_that_continues_profiles_what_is_left(dataset: EncodedDataset, tmp_path: Path) -> None:
    """Resumed within the range, a run profiles the rest. Resumed after it, a warning says so if there is no profile."""
    train(dataset, tmp_path, None, until=4)
    (warning,) = train(dataset, tmp_path, (3, 6), until=7)
    assert "updates 5 to 6 were profiled" in warning
    assert "profile-3-6.json.gz" in warning
    assert steps(tmp_path / "profile-3-6.json.gz") == ["ProfilerStep#5", "ProfilerStep#6"]
    assert train(dataset, tmp_path, (3, 6), until=8) == []
    (warning,) = train(dataset, tmp_path, (3, 5))
    assert warning == "no update is profiled: profile_updates is 3:5, and the run continues after 8"


def test_after_an_error_within_a_profile_the_process_can_profile_again(dataset: EncodedDataset, tmp_path: Path) -> None:
    """The next run in the same process, e.g. a reused Ray worker, has its profile. The failed run has none."""

    def fail(event: dict[str, Any]) -> None:
        if event.get("step") == 2:
            raise ZeroDivisionError

    for name, emit in (("failed", fail), ("next", ignore)):
        (tmp_path / name).mkdir()
        training = Training(Workers(), dataset, with_fields(updates=3, profile_updates=(1, 3)), tmp_path / name, emit)
        with nullcontext() if emit is ignore else pytest.raises(ZeroDivisionError):
            training.run()
    assert not [*tmp_path.glob("failed/profile-*")]
    assert steps(tmp_path / "next" / "profile-1-3.json.gz") == [f"ProfilerStep#{update}" for update in (1, 2, 3)]


def test_both_files_go_to_the_bucket(dataset: EncodedDataset, at_s3: S3Server) -> None:
    """They are kept beside the checkpoints, for publication by a stage on another machine."""
    store = Store.at(f"{at_s3.bucket()}/runs")
    build, settings = Build.of(store, "training-1"), with_fields(updates=2, profile_updates=(1, 1))
    with build.opened() as folder:
        Training(Workers(), dataset, settings, folder, build=build).run()
    kept = store.bucket.sizes_bytes("store/.making-training-1")
    assert min(kept["profile-1-1.txt"], kept["profile-1-1.json.gz"]) > 1000


@pytest.mark.parametrize("value", ["100", "110:100", "0:3", "1:21", "all", 5, "1:2:3", "-1:2"])
def test_a_wrong_range_is_one_line(value: object) -> None:
    with pytest.raises(UserError, match="is not a range of at most 20 updates; write 100:110 for") as caught:
        checked(TrainingSettings, "training.", profile_updates=value)
    assert str(caught.value).startswith(f"training.profile_updates: {value} is not")


def test_a_range_beyond_the_end_is_one_line() -> None:
    with pytest.raises(UserError, match=r"profile_updates is 5:11, but the run ends at update 10"):
        checked(TrainingSettings, updates=10, profile_updates="5:11")


def test_the_range_is_read_back_and_names_no_artifact() -> None:
    """A range survives JSON, the empty text means no profile, and neither is part of the run's identity."""
    settings = checked(TrainingSettings, profile_updates="100:110")
    assert settings.profile_updates == (100, 110)
    assert TrainingSettings.model_validate_json(settings.model_dump_json()) == settings
    assert checked(TrainingSettings, profile_updates="") == TrainingSettings()
    assert settings.identity() == TrainingSettings().identity()
