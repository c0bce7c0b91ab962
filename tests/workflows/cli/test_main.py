"""The commands of `aiayn` in turn, on a little generated text in real files."""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from pipeline.corpora import grammar
from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from tests.support.tiny_profile import overrides, training
from workflows.cli import main
from workflows.engine.dag import Step, in_order

TINY = overrides({"vocabulary.size": 300, **training("recipes.base", 6, 3), "recipes.base.averaging.last": 2})


@pytest.fixture(scope="module")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's corpus of plain and gzip files, with its TOML file."""
    folder = tmp_path_factory.mktemp("own")
    derivations = [grammar.derive(3, number) for number in range(700)]
    for split, rows in (("train", slice(0, 600)), ("dev", slice(600, 650)), ("test", slice(650, 700))):
        english = "".join(derivation.english + "\n" for derivation in derivations[rows])
        german = "".join(derivation.german + "\n" for derivation in derivations[rows])
        (folder / f"{split}.en.gz").write_bytes(gzip.compress(english.encode()))
        (folder / f"{split}.de").write_text(german)
    sides = '{{source = "{0}.en.gz", target = "{0}.de"}}'
    path = folder / "corpus.toml"
    path.write_text(
        'source = "en"\ntarget = "de"\n'
        + f"train = {sides.format('train')}\ndev = {sides.format('dev')}\ntest.own = {sides.format('test')}\n"
    )
    return path


def test_downloads_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the training text and both evaluation sets, which are cached beside their folders."""
    prepared: list[Step[Artifact]] = []

    def plan(steps: list[Step[Artifact]], *_: object) -> list[Artifact]:
        prepared.extend(in_order(steps))
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "run", plan)
    with pytest.raises(KeyboardInterrupt):
        main.prepare(out=tmp_path / "prepared", profile="wmt14")
    assert len(prepared) == 7
    assert {step.out.parent for step in prepared if step.out} == {tmp_path / "prepared"}


@pytest.mark.usefixtures("ray_cluster")
def test_text_to_score(
    toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """prepare, train, average, translate and score work on plain folders, and each output is readable."""
    main.prepare(out=tmp_path / "prepared", files=toml, overrides=TINY)
    assert json.loads((tmp_path / "prepared/corpus/corpus.json").read_text())["report"]["kept"] == 600
    assert len((tmp_path / "prepared/evaluation-own/own.de").read_text().splitlines()) == 50
    printed = capfd.readouterr().out
    report = json.loads((tmp_path / "prepared/report/corpus_report.json").read_text())
    assert [one["name"] for one in report["collections"]] == ["train.en.gz"]
    assert (report["data"], report["plan"]["budget_tokens"]) == ("text of the user's own", 1000)
    in_force = "default settings for 600 training pairs of your own text (not measured at this size); override with "
    assert printed.startswith(in_force)
    assert (tmp_path / "prepared/report/corpus_report.svg").is_file()
    assert f"report: {tmp_path / 'prepared/report'}: 600 of 600 training pairs kept, " in printed
    dataset, run_folder = tmp_path / "prepared/dataset", tmp_path / "run"
    main.train(dataset, out=run_folder, overrides=TINY[1:])
    assert capfd.readouterr().out.startswith(in_force)
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["settings"]["budget_tokens"] == 1000
    assert run["checkpoints"] == [2, 4, 6]
    assert run["settings"]["model"]["vocabulary_size"] == 300
    main.train(dataset, out=run_folder, overrides=TINY[1:])  # already finished: nothing to do
    with pytest.raises(UserError, match=r"run was built with seed 1 \(here 2\); move it"):
        main.train(dataset, out=run_folder, overrides=[*TINY[1:4], "recipes.base.training.seed=2"])
    main.average(tmp_path / "run", out=tmp_path / "model", last=2)
    assert json.loads((tmp_path / "model/averaging.json").read_text()) == {"updates": [4, 6]}

    capfd.readouterr()
    text = "The dog sleeps.\n\nWe bought the hat.\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode()))))
    main.translate(tmp_path / "model", beam_size=2, threads=1)
    lines = capfd.readouterr().out.split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""

    (tmp_path / "hypothesis").write_text("Das ist ein kleiner Test.\n")
    (tmp_path / "other").write_text("Ein Test.\n")
    references = [tmp_path / "other", tmp_path / "hypothesis"]
    main.score(hyp=[tmp_path / "hypothesis"], ref=references, lang="de", as_json=True)
    scores = json.loads(capfd.readouterr().out)
    assert scores["paper_bleu"] == pytest.approx(100)
    assert scores["sacrebleu"] == pytest.approx(100)
    assert scores["signature"].startswith("nrefs:2|")

    (tmp_path / "worse").write_text("Das ist ein kleiner Text.\n")
    files = {"hyp": [tmp_path / "hypothesis", tmp_path / "worse", tmp_path / "hypothesis"], "ref": references[1:]}
    main.score(**files, lang="zh", as_json=True)
    printed = json.loads(capfd.readouterr().out)
    assert [each["sacrebleu"] < 99 for each in printed["hypotheses"]] == [False, True, False]
    worse, equal = printed["differences"]
    assert worse["sacrebleu"]["difference"] == printed["hypotheses"][1]["sacrebleu"] - scores["sacrebleu"]
    assert (equal["chrf"]["p"], [*equal][:3]) == (1, ["file", "sacrebleu", "chrf"])
    main.score(**files, lang="zh")
    lines = capfd.readouterr().out.splitlines()
    assert f"{tmp_path / 'worse'} minus {tmp_path / 'hypothesis'}:" in lines
    assert "sacreBLEU +0.00 [0.00, 0.00], p 1.000 (sacrebleu --paired-bs: 0.001)  nrefs:1|bs:1000|" in "".join(lines)
    (tmp_path / "other").write_text("Ein Test.\nNoch einer.\n")
    with pytest.raises(UserError, match=r"hypothesis has 1 lines, .*other has 2; align"):
        main.score(hyp=references[::-1], ref=references[1:], lang="de")
