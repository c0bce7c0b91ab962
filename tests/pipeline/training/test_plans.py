"""pipeline.training.plans: one process per node computes a plan, the others map it, and no files remain."""

import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifacts import EncodedDataset
from pipeline.text.batching import EpochPlan, plan_epoch
from pipeline.text.encoding import EncodedSplit
from pipeline.training import plans
from pipeline.training.plans import shared_plan
from tests.support.tiny_training import TINY, start_processes


@pytest.fixture
def split(dataset: EncodedDataset) -> EncodedSplit:
    """The training pairs."""
    return EncodedSplit.open(dataset, "train")


@pytest.fixture
def computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one line per computed plan. Plans are shared in `tmp_path/node`."""
    (tmp_path / "node").mkdir()
    _on_node(tmp_path, monkeypatch)
    return tmp_path / "computed"


def _on_node(folder: Path, patch: pytest.MonkeyPatch) -> None:
    def counted(*arguments: object) -> EpochPlan:
        with (folder / "computed").open("a") as file:
            file.write(f"{arguments[3]}\n")
        time.sleep(0.2)
        return plan_epoch(*arguments)  # type: ignore[arg-type]

    patch.setattr(tempfile, "tempdir", str(folder / "node"))
    patch.setattr(plans, "plan_epoch", counted)


def _shared(computed: Path) -> list[Path]:
    """Returns the folders of shared plans."""
    return [*computed.parent.glob("node/aiayn-plans-*/*")]


def _assert_equal(plan: EpochPlan, split: EncodedSplit, epoch: int) -> None:
    expected = plan_epoch(split.source_lengths, split.target_lengths, TINY, epoch)
    assert plan.sha256() == expected.sha256()
    for name, array in expected.arrays.items():
        assert getattr(plan, name).dtype == array.dtype
        assert np.array_equal(getattr(plan, name), array)
    assert [rows.tolist() for rows in plan[2]] == [rows.tolist() for rows in expected[2]]
    assert len(plan) == len(expected)


def test_a_mapped_plan_is_the_computed_one(split: EncodedSplit, computed: Path) -> None:
    """Every array is equal. Another seed or budget has another plan, and the last user removes the files."""
    plan, again = shared_plan(split, TINY, 1), shared_plan(split, TINY, 1)
    assert computed.read_text() == "1\n"
    for mapped in (plan, again):
        assert isinstance(mapped.rows.base, np.memmap)
        _assert_equal(mapped, split, 1)
    others = [TINY.model_copy(update=change) for change in ({"seed": 7}, {"budget_tokens": 2300})]
    assert len({plan.sha256(), *(shared_plan(split, other, 1).sha256() for other in others)}) == 3
    del plan
    assert len(_shared(computed)) == 1
    del again, mapped
    assert _shared(computed) == []


def _map_plans(rank: int, dataset: EncodedDataset, folder: Path) -> None:
    """Maps two plans, like a worker, and holds them until both processes have them."""
    with pytest.MonkeyPatch.context() as patch:
        _on_node(folder, patch)
        split = EncodedSplit.open(dataset, "train")
        first, second = (shared_plan(split, TINY, epoch) for epoch in (0, 1))
        (folder / f"{rank}.done").touch()
        while len([*folder.glob("*.done")]) < 2:
            time.sleep(0.01)
        _assert_equal(first, split, 0)
        _assert_equal(second, split, 1)


def test_two_processes_compute_a_plan_once(dataset: EncodedDataset, tmp_path: Path) -> None:
    """Both processes have the same plans, and the files disappear when both have ended."""
    (tmp_path / "node").mkdir()
    start_processes(_map_plans, (dataset, tmp_path), 2)
    assert sorted((tmp_path / "computed").read_text().split()) == ["0", "1"]
    assert _shared(tmp_path / "computed") == []


@pytest.mark.parametrize("damage", ["none", "byte", "short", "missing", "unfinished"])
def test_what_a_kill_leaves_is_used_only_if_intact(split: EncodedSplit, computed: Path, damage: str) -> None:
    """A killed process's plan is used if it is complete and intact, and computed again otherwise."""
    plan = shared_plan(split, TINY, 0)
    (folder,) = _shared(computed)
    left = shutil.copytree(folder, computed.parent / "left")
    del plan
    shutil.move(left, folder)
    rows = folder / "rows.npy"
    content = bytearray(rows.read_bytes())
    content[-3] ^= 1
    if damage == "byte":
        rows.write_bytes(content)
    elif damage == "short":
        rows.write_bytes(content[:-8])
    elif damage in ("missing", "unfinished"):
        (folder / ("bounds.npy" if damage == "missing" else plans.SHA256)).unlink()
    _assert_equal(shared_plan(split, TINY, 0), split, 0)
    assert computed.read_text() == ("0\n" if damage == "none" else "0\n0\n")


def test_what_nobody_uses_is_removed_when_a_plan_is_asked_for(split: EncodedSplit, computed: Path) -> None:
    """A killed run's plans are removed. A plan in use stays."""
    first = shared_plan(split, TINY, 0)
    (in_use,) = _shared(computed)
    (in_use.parent / "left").mkdir()
    (in_use.parent / "left" / "rows.npy").touch()
    second = shared_plan(split, TINY, 1)
    assert len(_shared(computed)) == 2
    assert in_use.exists()
    _assert_equal(first, split, 0)
    _assert_equal(second, split, 1)


def test_a_full_disk_is_one_line(split: EncodedSplit, computed: Path) -> None:
    """The error has the folder and a remedy, and no files remain."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(
            UserError, match=r"plan of epoch 0, .* cannot be shared in .*node.*File too large.*free space there, or set"
        ):
            shared_plan(split, TINY, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert _shared(computed) == []


def test_settings_that_fit_no_plan_leave_nothing(split: EncodedSplit, computed: Path) -> None:
    """The error is the plan's own."""
    with pytest.raises(UserError, match="too few for one update"):
        shared_plan(split, TrainingSettings(budget_tokens=10_000_000), 0)
    assert _shared(computed) == []
