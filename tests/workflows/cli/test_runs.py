"""`aiayn runs` lists runs with their status. Errors are one line."""

import csv
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from pipeline.errors import UserError
from pipeline.store.store import Store
from tests.support.command_line import CommandLine
from tests.support.tiny_dag import run_table, table_of
from tests.support.tiny_profile import MadeTable2
from workflows.cli.results import LOCAL
from workflows.runs import begin_run, begun
from workflows.stages import TRAIN
from workflows.tracking.addresses import default_uri
from workflows.tracking.server import TRAINING_TAG, WORKFLOW_TAG, Server


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "runs")
    run_table(made, 1)
    run_table(made, 2, "multi30k")
    return made


def test_all_statuses_are_listed(store: Store, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last first, with their results or reasons, and commands that can be copied; unfinished ones have progress."""
    monkeypatch.setenv("COLUMNS", "40")
    names = begin_run(store, "table2", "embedded", table_of(4)).record.artifacts
    (store.scratch(names["train en-de base"]) / "recovery" / "00001200").mkdir(parents=True)
    with pytest.raises(UserError), begun(store, "table2", "embedded", table_of(5), command="python -m x --seed 5"):
        raise UserError("no GPU")
    with begun(store, "table2", "embedded", table_of(3), command="python -m x --until training") as stopped:
        stopped.end(store, "stopped", "--until training")
    with begun(store, "table2", "embedded", table_of(6), command="aiayn table2 --seed 6"):
        done = command_line.here("workflows.cli", "runs", "--store", str(store.root))
    assert done.returncode == 0
    listed = re.sub(r"20\S+ \d\d:\d\d", "", done.stdout.partition("\n")[2])
    assert " ".join(listed.split()) == (
        "table2/embedded/5 running 1 of 5 stages aiayn table2 --seed 6 table2/embedded/4 stopped --until training "
        "python -m x --until training table2/embedded/3 failed no GPU python -m x --seed 5 "
        "table2/embedded/2 interrupted 1 of 5 stages, update 1,200 "
        "table2/multi30k/1 finished BLEU 82.50 python -m workflows.reproduce_table2 --seed 2 "
        "table2/embedded/1 finished BLEU 81.50 python -m workflows.reproduce_table2 --seed 1"
    )


def test_mistakes_are_one_line(store: Store, tmp_path: Path, command_line: CommandLine) -> None:
    """A missing run or folder, or a model's wrong name. A folder without runs is not an error."""
    root, out, named = str(store.root), str(tmp_path / "out"), "is not a folder; name a folder written by `aiayn"
    for arguments, message in (
        (["runs", "--store", str(tmp_path / "none")], "none: no such folder; aiayn table2 writes"),
        (["translate", f"{root}/table2/embedded/en-de-bas"], f"en-de-bas {named} average`"),
        (["results", f"{root}/table2/embedded/3", "--out", out], "embedded/3 is no run of a table; `aiayn runs`"),
        (["average", f"{root}/table2/embedded/x", "--out", out], f"x {named} train`, or a label in a run's run.json"),
        (["export", "ctranslate2", f"{root}/table2/x", "--out", out], f"x {named} average`"),
    ):
        done = command_line.here("workflows.cli", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    assert "no runs in" in command_line.here("workflows.cli", "runs", "--store", str(tmp_path / "none")).stdout


@pytest.mark.spawns
def test_curves_until_ctrl_c(store: Store, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine, without telemetry, at the last run's experiment. A server has its page; no database, none."""
    arguments = ["workflows.cli", "curves", "--store", str(store.root)]
    assert "mlflow.db: no MLflow database" in command_line.here(*arguments).stderr
    server, record = Server(default_uri(store.root), "table2", store.root), store.root / "table2/multi30k/1/run.json"
    page = f"#/experiments/{server.experiment_id}/runs?compareRunsMode=CHART"
    workflow = json.loads(record.read_text())["table"].rpartition("-")[2]
    server.client.create_run(server.experiment_id, tags={WORKFLOW_TAG: workflow, TRAINING_TAG: "a model's"})
    with subprocess.Popen([sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout
        shown = serving.stdout.readline()
        place = shown.removeprefix("curves: http://127.0.0.1:").partition("/")[0]
        with urlopen(f"http://127.0.0.1:{place}/ajax-api/3.0/mlflow/ui-telemetry") as answer:
            sends_nothing = json.load(answer)["disable_ui_telemetry"]
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{place}")
        without_models = command_line.here(*arguments[:2], f"{store.root}/table2/embedded").stdout
        serving.send_signal(signal.SIGINT)
        assert (serving.stdout.read(), serving.wait()) == ("MLflow ends\n", 0)
    assert sends_nothing
    assert f":{place}/{page}&orderByKey=attributes.%60run_name%60" in shown
    assert f"{workflow}%27%20and%20tags.%60{TRAINING_TAG}%60" in shown
    assert without_models == f"curves: http://127.0.0.1:{place}/{page}\n"


def test_a_damaged_record_is_one_line(store: Store, command_line: CommandLine) -> None:
    """The other run is listed. `aiayn runs` does not fail, since a rerun of the run's command mends it."""
    (store.root / "table2" / "embedded" / "1" / "run.json").write_text("{")
    done = command_line.here("workflows.cli", "runs", "--store", str(store.root))
    assert done.returncode == 0
    assert "table2/multi30k/1" in done.stdout
    assert "table2/embedded/1" not in done.stdout
    assert "1/run.json cannot be read" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_quoted_path_is_left_out_whole() -> None:
    typed = "aiayn table2 --store '/mnt/my runs' --data=/mnt/x --config 'my own.toml' --address auto --seeds 3"
    assert LOCAL.sub("", typed) == "aiayn table2 --config 'my own.toml' --seeds 3"


def test_a_page_has_each_run_s_verdicts(copy_of_table2: MadeTable2, tmp_path: Path, command_line: CommandLine) -> None:
    """Options that name this machine's folders are left out. Generated text has no verdicts; seeds on real text do."""
    run, page, seeds = copy_of_table2.folder / "1", tmp_path / "pages/page.md", tmp_path / "pages/page-1.csv"

    def written() -> str:
        done = command_line.here("workflows.cli", "results", str(run.parent), "--out", str(page), "--title", "Tiny")
        assert done.returncode == 0, done.stderr
        assert seeds.read_bytes() == (run / "seeds.csv").read_bytes()
        return page.read_text()

    assert "(Is a directory)" in command_line.here("workflows.cli", "results", str(run.parent), "--out", ".").stderr
    text = written()
    assert text.startswith("# Tiny\n")
    assert "\n## Table 2: table2/embedded/1\n" in text
    assert " --store" not in text
    assert "### Verdicts" not in text
    for row in csv.DictReader(seeds.read_text().splitlines()):
        assert (row["training_version"], len(row["dataset"])) == (str(TRAIN.version), 12)
        assert all(int(row[name]) > 0 for name in ("budget_tokens", "vocabulary", "averaged"))
    rows = [
        f"{model},en-de,{seed},Multi30k task 1,bfloat16,10,{nll + 0.001 * seed}"
        for model, nll in (("base", 1.7), ("recurrent", 1.8), ("convolutional", 1.6))
        for seed in (1, 2, 3)
    ]
    (run / "seeds.csv").unlink()  # a link into the store
    (run / "seeds.csv").write_text("\n".join(["model,pair,seed,data,dtype,updates,equal_flop_dev_nll", *rows]))
    (verdict,) = [line for line in written().splitlines() if "superior in quality" in line]
    assert verdict.count(" | ") == 4
    assert "base − convolutional: -0.100 [" in verdict
    assert " fails" in verdict
