import os
import shutil
from pathlib import Path

import pytest

from pipeline.artifacts import METRICS, Hypotheses
from pipeline.errors import UserError
from pipeline.records import DecodingRecord
from pipeline.settings import DecodingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support.s3_server import S3Server
from tests.support.tiny_dag import make, run_table, table_of
from workflows.cli.prepared import searched
from workflows.engine.dag import in_order
from workflows.names import named_folder, names_into
from workflows.runs import begin_run, runs_in

AVERAGED = {seed: next(step.name for step in in_order([table_of(seed)]) if "average" in step.label) for seed in (1, 2)}


def _model(path: str | Path) -> Path:
    return named_folder("average", Path(path), "model.safetensors")


def _training(path: str | Path) -> Path:
    return named_folder("train", Path(path), METRICS)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "runs")
    run_table(store, 1)
    run_table(store, 2)
    return store.root


def test_what_is_damaged_is_not_used(runs: Path) -> None:
    """Otherwise a changed weight of a kept checkpoint would be averaged silently."""
    (_training("table2/embedded/en-de-base") / "model.safetensors").write_text("[]\n")
    with pytest.raises(UserError, match=r"training-\w+ is damaged: model.safetensors does not match its sha256"):
        _training("table2/embedded/en-de-base")


def test_a_name_fetches_from_the_bucket(at_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that built a table from its models' outlines can use each model, by the table's search."""
    uri = f"{at_s3.bucket()}/runs"
    run_table(Store.at(uri), 1)
    monkeypatch.setenv("AIAYN_CACHE", str(tmp_path / "another machine"))
    there = Store.at(uri)
    run_table(there, 1)
    assert not there.folder(AVERAGED[1]).exists()
    model = _model(there.root / "table2" / "embedded" / "en-de-base")
    assert (model / "model.safetensors").is_file()
    assert model == there.folder(AVERAGED[1]).resolve()
    assert Artifact(model).damage() is None
    shutil.rmtree(model)
    (run,) = runs_in(there)
    assert [*run.models(there)] == ["en-de-base"]
    assert _model(there.root / "table2" / "embedded" / "1") == model
    used = DecodingRecord(sentences=1, seconds=1.0, tokens=1, settings=DecodingSettings(beam_size=3), dtype="float32")
    there.publish("decoding-1", lambda at: Hypotheses(at).write(used), {}, holds_lock=lambda: True)
    shutil.rmtree(there.folder("decoding-1"))
    run.save(artifacts={**run.record.artifacts, "decode en-de base": "decoding-1"})
    assert searched(model, model).beam_size == 3


def test_names_for_folders(runs: Path) -> None:
    first, second = (runs / "store" / AVERAGED[seed] for seed in (1, 2))
    names = ("en-de-base", "en-de base", "models/en-de-base", "newest/en-de-base", "2/models/en-de-base")
    for name in (*names, "average-en-de-base", "2/average en-de base"):
        assert _model(f"table2/embedded/{name}") == second
    assert _model("table2/embedded/1") == first  # its only model
    assert _model(runs / "table2/embedded/1/en-de-base") == first
    assert _model(f"runs/store/{first.name}") == first
    for name in ("en-de-base", "1", "1/train en-de base"):
        assert _training(f"table2/embedded/{name}").name.startswith("training-")
    (runs.parent / "my-model").symlink_to(first)
    assert _model("my-model") == first  # so that its store and run are found
    os.chdir(runs.parent.parent)
    assert _model(runs.relative_to(Path.cwd()) / "table2/embedded/en-de-base") == second


def test_an_unfinished_step_is_called_unfinished(runs: Path) -> None:
    begin_run(Store(runs), "table2", "embedded", table_of(3))
    begin_run(Store(runs), "table2", "multi30k", table_of(4))
    (runs / "table2" / "multi30k" / "1 of May" / "models").mkdir(parents=True)  # a user's own, no run
    for name in ("embedded/3/en-de-base", "embedded/3/models/en-de-base", "multi30k/en-de-base"):
        with pytest.raises(UserError, match=f"{name} is not finished; run its command again to continue it"):
            _model(f"table2/{name}")
    trained = next(step for step in in_order([table_of(4)]) if "train" in step.label)
    make(Store(runs), trained)
    assert _training("table2/multi30k/en-de-base").name == trained.name
    for name in ("table2/embedded/3/en-fr-base", "runs/store/averaging-0123456789abcdef"):
        with pytest.raises(UserError, match=f"{name} is not a folder"):
            _model(name)


def test_links_and_runs_elsewhere_count(tmp_path: Path) -> None:
    """Links are followed if absolute, relative, indirect or beside the runs, and if the output folder is a link; a
    run's record counts in any folder."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    store = Store(tmp_path / "runs")
    names = [f"averaging-{number}" for number in range(6)]
    for name in names:
        store.folder(name).mkdir(parents=True)
    (store.root / "best").symlink_to(tmp_path / "disk" / "store" / names[0])
    (store.root / "mine").mkdir()
    (store.root / "mine" / "again").symlink_to("../best")
    (store.root / "mine" / "weights").symlink_to(f"../store/{names[1]}/model.safetensors")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "old").symlink_to(store.folder(names[2]))
    (tmp_path / "elsewhere" / "run.json").write_text('{"artifacts": {"average en-de base": "averaging-4"}}')
    (store.root / "mine" / "run.json").write_text('{"seed": 1}')  # a training's own record
    (store.root / "table2").symlink_to(tmp_path / "elsewhere")
    (store.root / "mine" / "later").symlink_to(f"../store/{names[3]}-not-made")
    (store.root / "mine" / "half").symlink_to("../store/.making-training-1")
    (store.root / "mine" / "loop").symlink_to("loop")
    (store.root / "mine" / "up").symlink_to("..")
    wanted = {*names[:3], names[4], f"{names[3]}-not-made", ".making-training-1"}
    assert set(names_into(store)) == wanted
    assert set(names_into(Store(tmp_path / "disk"))) == wanted
