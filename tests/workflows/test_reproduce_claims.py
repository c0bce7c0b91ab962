"""The claims page end to end, on little generated text: the real stages, Ray Tune and MLflow."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from tests.support.tiny_profile import TEXT, toml, training
from tests.support.wsj_folder import make_wsj
from workflows import reproduce_claims, reproduce_table2
from workflows.claims.every_claim import SECTIONS
from workflows.cli.options import Common
from workflows.experiment import requested
from workflows.profiles.loading import load_profile

CONFIG = {
    **TEXT,
    **training("recipes.base", 6),
    **training("grid", 4),
    "corpora.en-de.dev_pairs": 40,
    "recipes.base.averaging.last": 2,
    "choice.beam_sizes": [1],
    "choice.length_penalties": [0.6],
    "claims.seeds": 2,
    "claims.longest_tokens": 16,
    "grid.text.corpora.en-de.train_pairs": 600,
    "grid.text.vocabulary.size": 300,
}


@pytest.mark.usefixtures("ray_cluster")
def test_some_sections_after_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Table 2's run is reused. Positions and heads are judged over two seeds; trade-offs are not judged."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = tmp_path / "claims.toml"
    config.write_text(toml(CONFIG))
    cell = {"config": config, "store": tmp_path, "pairs": "en-de", "models": "base"}
    reproduce_table2.main(**cell)
    trained = {folder.name for folder in (tmp_path / "store").glob("training-*")}
    capsys.readouterr()
    reproduce_claims.main(sections="3.5,6.1,figure 4", **cell)
    output = capsys.readouterr().out
    folder = tmp_path / "claims" / "embedded"
    assert f"report: {folder / 'claims.html'}" in output
    claims = json.loads((folder / "claims.json").read_text())
    differing = {(entry["what"], *entry["cells"]): entry["here"] for entry in claims["differences"]}
    assert differing["updates", "positions: all"] == "4"
    short = differing["training sentences", "positions: sinusoids", "positions: learned positions"]
    assert short == "at most 16 tokens a side"
    judged = {claim["text"].split()[0]: claim for claim in claims["claims"]}
    assert {claim["section"] for claim in judged.values()} == {"3.5", "6.1", "figure 4"}
    for claim in ("sinusoids", "heads", "their"):  # extrapolation, antecedents, sharpness
        assert judged[claim]["verdict"] in ("holds", "undecided", "fails")
        assert judged[claim]["effects"][0]["n"] == 2
    assert {judged[claim]["verdict"] for claim in ("a", "single", "EN-DE:")} == {"needs real text", "needs WMT14"}
    folders = {folder.name for folder in (tmp_path / "store").glob("training-*")}
    assert trained < folders
    assert len(folders - trained) == 1 + 3 * 2  # base's second seed; two seeds each of positions and of all lengths
    page = (folder / "claims.html").read_text()
    assert "perplexity-by-length.csv" in page
    assert "effects-heads-share.csv" in page
    header, *seeds = (folder / "seeds.csv").read_text().splitlines()
    assert header.startswith("model,seed,final_dev_nll,")
    assert len({line.split(",")[0] for line in seeds}) == len(seeds) == 2 + 3 * 2
    reproduce_claims.main(sections="3.5,6.1,figure 4", **cell)
    assert "stages to run" not in capsys.readouterr().out


def test_sections_are_those_of_the_page() -> None:
    """Each section can be chosen as printed. Prefixes, repetitions and another order select the same sections."""
    assert reproduce_claims.chosen_sections(None) == [*SECTIONS]
    assert reproduce_claims.chosen_sections("figure 4, §6.1,3.2,6.1") == ["3.2.1", "3.2.2", "6.1", "figure 4"]


def test_generated_text_is_asked_only_what_it_can_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On generated text, rows of Table 3, parsers and attention functions are not trained; on real text they are."""
    plans = {}
    for profile in ("embedded", "multi30k"):
        reproduce_claims.main(profile=profile, plan=True, verbose=True, store=str(tmp_path), gpus=1, gpu="h100")
        output = capsys.readouterr().out
        plans[profile] = [line.split() for line in output.splitlines() if line.strip().startswith("train ")]
    trained = {profile: [" ".join(line[1:]) for line in lines] for profile, lines in plans.items()}
    assert not [line for line in trained["embedded"] if "additive" in line or " C4 " in line or "supervised" in line]
    assert len([line for line in trained["embedded"] if line.startswith("base seed")]) == 3
    assert len([line for line in trained["multi30k"] if "additive" in line]) == 3 * (4 + 2)  # d_k; rates and seeds
    assert [line for line in trained["multi30k"] if " C4 seed 3" in line]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sections": "8"}, r"--sections 8: no claims there; choose from abstract, 1, 3\.2\.1"),
        ({"sections": "3.2,"}, "--sections '': no claims there"),
        ({"sections": "3.2", "rows": "A"}, r"--rows: no claim of --sections 3\.2 that profile embedded can judge"),
        ({"rows": "A"}, "--rows: no claim that profile embedded can judge depends on it; leave it out"),
        ({"sections": "6.2", "treebank": Path("none")}, "--treebank: no claim of --sections 6.2 that profile embedded"),
        ({"sections": "3.5", "models": "base"}, "--models: no claim of --sections 3.5 that profile embedded can judge"),
        ({"sections": "3.2.2", "pairs": "en-de"}, "--pairs: no claim of --sections 3.2.2 that profile embedded can"),
        ({"sections": "6.2", "rows": "nonsense", "profile": "multi30k"}, "--rows nonsense: no such row in Ta"),
        ({"sections": "figure 4", "models": "recurrent"}, "--models recurrent: the profile has base, big"),
        ({"sections": "6.3", "treebank": Path("none")}, "none is not a treebank"),
        ({"treebank": Path(__file__).parent}, "--treebank .*: no sections of the Wall Street Journal there"),
        ({"treebank": Path(__file__)}, "--treebank .*: no sections of the Wall Street Journal there"),
        ({"overrides": ["table4.x=1"]}, r"--set table4\.x=1: no claim depends on it; leave it out"),
    ],
)
def test_an_option_that_chooses_nothing_is_one_line(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Unknown sections, and options that the chosen sections do not need, are errors."""
    with pytest.raises(UserError, match=message):
        reproduce_claims.main(store=str(tmp_path), plan=True, **options)


def test_a_failure_concerns_the_table_it_belongs_to(tmp_path: Path) -> None:
    """On WMT14 all tables are judged. A failed row of Table 3 leaves Table 2 unchanged."""
    profile = load_profile("wmt14")
    request = requested("claims", profile, Common(store=str(tmp_path), plan=True))
    needed = reproduce_claims.reproduction(
        profile, ["5.4", "6.1", "6.2"], request, (["en-de"], ["base"]), "base,A1", None
    )
    failed = needed.tabulate({"table3 A1 seed 1": "the loss is nan"})
    before, after = (
        {step.label: step.fingerprint for step in judged.inputs} for judged in (needed.tabulate({}), failed)
    )
    assert before["table 2"] == after["table 2"]
    assert before["table 3"] != after["table 3"]


def test_settings_of_the_tables_are_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings of Tables 1 and 4 are prefixed with the table. Unknown or unused settings are errors."""
    arguments = {"sections": "4,6.3", "plan": True, "verbose": True, "store": str(tmp_path / "store")}
    arguments["treebank"] = make_wsj(tmp_path / "wsj")
    folders = []
    for changes in ([], ["table1.timing.rounds=3"], ["table4.recipes.parser.training.seed=7"]):
        reproduce_claims.main(overrides=changes, **arguments)
        lines = capsys.readouterr().out.splitlines()
        folders.append({line.split("to run")[0].strip(): line.split()[-3] for line in lines if " to run " in line})
    plain, timed, parsed = folders
    assert plain.keys() == timed.keys() == parsed.keys()
    changed = {name for name in plain if plain[name] != timed[name]}
    assert {"measure times", "time arguments"} & changed
    assert not {name for name in changed if name.startswith("train ")}
    changed = {name for name in plain if plain[name] != parsed[name]}
    assert {name for name in changed if name.startswith("train supervised")}
    assert "measure times" not in changed
    with pytest.raises(UserError, match="nonsense"):
        reproduce_claims.main(overrides=["table1.nonsense=1"], **arguments)
    with pytest.raises(UserError, match=r"--set table4\.x=1: no claim of --sections 3\.2\.1 depends on it"):
        reproduce_claims.main(sections="3.2.1", plan=True, store=str(tmp_path), overrides=["table4.x=1"])
