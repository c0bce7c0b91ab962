from pathlib import Path

import pytest

from pipeline.complexity.settings import LAYER_TYPES
from pipeline.errors import UserError
from tests.support.reproduced import Tracked, artifacts, written
from workflows import reproduce_table1
from workflows.cli.reproduce import reproduce
from workflows.profiles.complexity import load_complexity_profile

TINY = [
    "sweep.lengths=[16, 32, 64]",
    "sweep.width=8",
    "sweep.widths=[8, 16, 32]",
    "sweep.separable_widths=[8, 16, 32]",
    "sweep.length=16",
    "layers.kernel=3",
    "layers.window=8",
    "timing.rounds=2",
    "timing.threads=1",
]


@pytest.mark.usefixtures("ray_cluster")
def test_counted_and_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    reproduce(*reproduce_table1.main(profile="cpu", overrides=TINY, store=runs))
    output = capsys.readouterr().out
    assert output.startswith("settings of profile cpu; changed by --set ")
    folder, table = written(output)
    for place in (folder, (folder / "table1.json").resolve().parent):
        assert {path.name for path in place.iterdir()} >= {"table1.json", "table1.md", "report.html", "manifest.json"}
    main, *_ = (each["rows"] for each in table["tables"])
    assert [row["name"] for row in main] == list(LAYER_TYPES)
    for row in main:
        values = row["values"]
        assert values["n.flop"] == pytest.approx(values["n.paper"], abs=0.15)
        assert values["d.flop"] == pytest.approx(values["d.paper"], abs=0.25)  # d is not far above k here
        assert all(table["metrics"][f"time_s.{row['name']}.n_{n}.d_8"] > 0 for n in (16, 32, 64))
    assert [row["values"]["path.paper"] for row in main] == ["O(1)", "O(n)", "O(log_k(n))", "O(n/r)", ""]

    (run,) = Tracked(runs, "table1").runs()
    assert (run.info.run_name, run.info.status) == ("table1 cpu", "FINISHED")
    assert run.data.params["layers.window"] == "8"
    assert run.data.metrics["exponent_n.flop.recurrent"] == main[1]["values"]["n.flop"]
    assert run.data.metrics["exponent_d.time.self-attention"] == main[0]["values"]["d.time"]

    before = artifacts(runs)
    reproduce(*reproduce_table1.main(profile="cpu", overrides=TINY, store=runs))
    assert artifacts(runs) == before
    reproduce(*reproduce_table1.main(profile="cpu", overrides=[*TINY, "timing.rounds=3"], store=runs))
    assert sorted(name.partition("-")[0] for name in artifacts(runs) - before) == ["complexity", "tabulating"]


def test_a_file_chooses_the_profile_and_options_come_after_it(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('profile = "gpu"\nlayers.window = 16\ntiming.rounds = 3\n')
    profile = load_complexity_profile(config=config, overrides=["timing.rounds=5"])
    assert (profile.name, profile.layers.window, profile.timing.rounds) == ("gpu", 16, 5)
    assert profile.sweep == load_complexity_profile("gpu").sweep
    assert load_complexity_profile("cpu", config=config).name == "cpu"
    config.write_text('profiles = "gpu"\n')
    with pytest.raises(UserError, match="there is no setting 'profiles'"):
        load_complexity_profile(config=config)
