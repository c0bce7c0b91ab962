"""workflows.names: runs' folders link into the store, and commands accept names for folders."""

import os
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store.store import Store
from tests.support.experiments import drawn
from tests.support.s3_server import S3Server
from tests.support.tiny_dag import AVERAGE, TRAIN, SeedSettings, make, run_table, table_of
from workflows import reproduce_table4
from workflows.cli.options import Common
from workflows.engine.dag import in_order
from workflows.experiment import requested
from workflows.names import begin_run, links_into, named_folder, named_steps
from workflows.profiles.parsing import load_parsing_profile

AVERAGED = {seed: next(step.name for step in in_order([table_of(seed)]) if "average" in step.label) for seed in (1, 2)}


def _model(path: str | Path) -> Path:
    return named_folder("average", Path(path), "model.safetensors")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Changes to a working directory whose folder `runs` has two runs."""
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "runs")
    run_table(store, 1)
    run_table(store, 2)
    return store.root


def test_a_run_s_folder_leads_into_the_store(runs: Path) -> None:
    """Report, manifest, models and other files are linked, relatively, for each run and the newest."""
    for place in ("1", "2", "newest", ""):
        folder = runs / "table2" / "embedded" / place
        assert (folder / "report.html").read_text().startswith("python -m ")
        assert (folder / "manifest.json").is_file()
        assert (folder / "models" / "en-de-base" / "model.safetensors").is_file()
        assert (folder / "trainings" / "en-de-base" / "metrics.jsonl").is_file()
        assert (folder / "scores" / "en-de-base" / "scores.json").is_file()
    links = [path for path in (runs / "table2").rglob("*") if path.is_symlink()]
    assert not [path for path in links if os.path.isabs(os.readlink(path))]
    assert (runs / "table2" / "embedded" / "newest").resolve().name == "2"
    moved = runs.with_name("moved")
    runs.rename(moved)
    assert (moved / "table2" / "embedded" / "report.html").is_file()


def test_what_is_damaged_is_not_used(runs: Path) -> None:
    """Otherwise a changed weight of a kept checkpoint would be averaged silently."""
    training = runs / "table2" / "embedded" / "trainings" / "en-de-base"
    assert named_folder("train", training, "run.json") == training
    (training / "model.safetensors").write_text("[]\n")
    with pytest.raises(UserError, match=r"en-de-base is damaged: model.safetensors does not match its sha256"):
        named_folder("train", training, "run.json")


def test_a_name_fetches_what_is_only_in_the_bucket(
    at_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that built a table from its models' outlines can use each model."""
    uri = f"{at_s3.bucket()}/runs"
    run_table(Store.at(uri), 1)
    monkeypatch.setenv("AIAYN_CACHE", str(tmp_path / "another machine"))
    there = Store.at(uri)
    run_table(there, 1)
    assert not there.has(AVERAGED[1])
    model = _model(there.root / "table2" / "embedded" / "en-de-base")
    assert (model / "model.safetensors").is_file()
    assert model == there.folder(AVERAGED[1]).resolve()
    assert there.has(AVERAGED[1])


def test_the_same_again_continues_its_run(runs: Path) -> None:
    """The run's number has the files and `newest` points to it. Unbuilt artifacts are linked from the beginning."""
    store = Store(runs)
    assert run_table(store, 1).name == "1"
    profile = runs / "table2" / "embedded"
    assert (profile / "newest").resolve().name == "1"
    table = table_of(3)
    assert begin_run(store, "table2", "embedded", table).name == "3"
    assert {step.name for step in in_order([table])} <= {*links_into(store)}
    assert begin_run(store, "table2", "embedded", table).name == "3"
    assert (profile / "newest").resolve().name == "1"


def test_names_for_folders(runs: Path) -> None:
    """Names with and without kind, number or `newest` work; so do paths, and names below another folder."""
    first, second = (runs / "store" / AVERAGED[seed] for seed in (1, 2))
    for name in ("en-de-base", "models/en-de-base", "newest/en-de-base", "2/models/en-de-base"):
        assert _model(f"table2/embedded/{name}") == second
    assert _model("table2/embedded/1") == first  # its only model
    assert _model(runs / "table2/embedded/1/en-de-base") == first
    assert _model(f"runs/store/{first.name}") == first
    assert named_folder("train", Path("table2/embedded/en-de-base"), "run.json").name.startswith("training-")
    os.chdir(runs.parent.parent)
    assert _model(runs.relative_to(Path.cwd()) / "table2/embedded/en-de-base") == second


def test_an_unfinished_step_is_called_unfinished(runs: Path) -> None:
    """By its number, and by the short name as long as no run has finished: the remedy is to continue the run."""
    begin_run(Store(runs), "table2", "embedded", table_of(3))
    begin_run(Store(runs), "table2", "multi30k", table_of(4))
    (runs / "table2" / "multi30k" / "1 of May" / "models").mkdir(parents=True)  # a user's own, no run
    for name in ("embedded/3/en-de-base", "embedded/3/models/en-de-base", "multi30k/en-de-base"):
        with pytest.raises(UserError, match=f"{name} is not finished; run its command again to continue it"):
            _model(f"table2/{name}")
    trained = next(step for step in in_order([table_of(4)]) if "train" in step.label)
    make(Store(runs), trained)
    assert named_folder("train", Path("table2/multi30k/en-de-base"), "run.json").name == trained.name
    for name in ("table2/embedded/3/en-fr-base", "runs/store/averaging-0123456789abcdef"):
        with pytest.raises(UserError, match=f"{name} is not a folder"):
            _model(name)


@pytest.mark.parametrize(
    ("workflow", "profile"),
    [("table2", "wmt14"), ("table3", "embedded"), ("table4", "embedded")],
)
def test_every_name_is_one_artifact_s(workflow: str, profile: str, tmp_path: Path) -> None:
    """Names and labels are unique even in runs with several texts of one language pair."""
    steps = named_steps(drawn(workflow, profile, Store(tmp_path)))
    assert len(steps) == len({step.label for step in steps.values()}) > 20
    assert len({step.fingerprint for step in steps.values()}) == len(steps)


def test_a_parser_chosen_from_one_and_that_one_have_two_names(tmp_path: Path) -> None:
    """The row's name means the chosen parser."""
    profile = load_parsing_profile(overrides=["choice.dropouts=[0.1]"])
    request = requested("table4", profile, Common(store=str(tmp_path), plan=True))
    steps = named_steps(reproduce_table4.reproduction(profile, request).tabulate({}))
    models = {name.name: step.label for name, step in steps.items() if name.parent.name == "models"}
    assert models == {"supervised": "choose supervised", "supervised-candidate": "average supervised candidate"}


def test_two_steps_of_one_name_are_refused(tmp_path: Path) -> None:
    """A run could link only one of them, and `aiayn clean` would delete the other."""
    alike = [TRAIN("train en-de base", None, SeedSettings(seed=seed)) for seed in (1, 2)]
    with pytest.raises(ValueError, match=r"train en-de base, named trainings/en-de-base in a run's folder: two steps"):
        begin_run(Store(tmp_path), "table2", "embedded", AVERAGE("average", *alike))
    assert not (tmp_path / "table2").exists()


def test_a_users_links_are_found(tmp_path: Path) -> None:
    """Links are followed if absolute, relative, indirect or beside the runs, and if the output folder is a link."""
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
    (store.root / "table2").symlink_to(tmp_path / "elsewhere")
    (store.root / "mine" / "later").symlink_to(f"../store/{names[3]}-not-made")
    (store.root / "mine" / "half").symlink_to("../store/.making-training-1")
    (store.root / "mine" / "loop").symlink_to("loop")
    (store.root / "mine" / "up").symlink_to("..")
    wanted = {*names[:3], f"{names[3]}-not-made", ".making-training-1"}
    assert set(links_into(store)) == wanted
    assert set(links_into(Store(tmp_path / "disk"))) == wanted


def test_what_a_user_has_put_there_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A user's folder, file or foreign link in the place of a link stays; all but the link cause a warning."""
    profile = tmp_path / "table2" / "embedded"
    mine = profile / "models"
    mine.mkdir(parents=True)
    (mine / "notes.txt").write_text("mine")
    (profile / "report.html").write_text("my report")
    (profile / "backup").symlink_to("/mnt/a disk that is not mounted/backup")
    run_table(Store(tmp_path), 1)
    assert (mine / "notes.txt").read_text() == "mine"
    assert (profile / "report.html").read_text() == "my report"
    assert (profile / "backup").is_symlink()
    for name in ("models", "report.html"):
        assert f"{name} is not a link, so it is left" in caplog.text
    assert (profile / "manifest.json").is_file()
