"""The files of examples/: the commands in their headers run as written."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

ROOT = Path(__file__).parents[1]
H100 = ["--gpus", "1", "--gpu", "h100"]
"""A named GPU, so that the forecast measures none."""
Planned = Callable[[str], dict[str, float]]
FUNCTIONS = "scaled", "dot_product", "additive"


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: CommandLine) -> Planned:
    """Plans an example's command beside `examples`; returns the millions of parameters of its runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    def planned(example: str) -> dict[str, float]:
        header = (tmp_path / "examples" / example).read_text()
        command = re.search(r"^# +aiayn (table\d .*?)( --plan)?$", header, re.MULTILINE)
        assert command, f"{example} has no command in its header"
        arguments = [*shlex.split(command[1]), "--json", *H100, "--store", str(tmp_path / "runs")]
        done = command_line.here("workflows.cli", "forecast", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        runs = json.loads(done.stdout)["runs"]
        return {f"{run['name']} × {run['times']}": round(run["parameters"] / 1e6, 1) for run in runs}

    return planned


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        # what `aiayn claims` compares
        ("attention_functions.toml", [f"{function}_{d_k} × 3" for function in FUNCTIONS for d_k in (4, 128)]),
        # rows of one's own behind the paper's, and base with several seeds
        ("table3_own_rows.toml", ["base × 3", "B1 × 1", "F1 × 1", "F2 × 1", "F3 × 1", "F4 × 1"]),
    ],
)
def test_the_plan_has_the_models_of_the_example(planned: Planned, example: str, expected: list[str]) -> None:
    assert sorted(planned(example)) == sorted(f"en-de {name}" for name in expected)


def test_models_have_the_sizes_that_the_examples_state(planned: Planned) -> None:
    """256 more parameters for each piece: 4,000 and 5,000. One head is as wide as all of base's together."""
    assert planned("multi30k_smaller_vocabulary.toml") == {"en-de base × 1": 3.7, "en-fr base × 1": 3.9}
    runs = planned("table3_multi30k.toml")
    assert runs.keys() == {f"en-de {row} × 3" for row in ("base", "A1", "A4", "B1", "C1", "D1", "D3", "E")}
    assert [runs[f"en-de {row} × 3"] for row in ("base", "A1", "A4", "B1", "C1")] == [4.3, 4.3, 4.3, 3.8, 2.2]


def test_the_published_text_is_prepared_as_published(planned: Planned, data: Path, tmp_path: Path) -> None:
    """Escapes and hyphens as in the authors' files; 10,000 pieces of 128 and 4 + 4 layers have 2.6 M parameters."""
    command = [sys.executable, ROOT / "examples" / "multi30k_published.py", data / "multi30k", tmp_path / "published"]
    subprocess.run(command, check=True)
    lines = (tmp_path / "published" / "test_2016_flickr.de").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "ein boston terrier läuft über saftig-grünes gras vor einem weißen zaun ."
    assert "&apos;" in (tmp_path / "published" / "val.en").read_text(encoding="utf-8")
    assert planned("multi30k_published.toml") == {"en-de base × 1": 2.6}


@pytest.mark.parametrize(("example", "pair"), [("own_text.toml", "en-cs"), ("iwslt14.toml", "de-en")])
def test_own_text_is_found_beside_its_description(planned: Planned, tmp_path: Path, example: str, pair: str) -> None:
    (tmp_path / example).write_text(text := (ROOT / "examples" / example).read_text())
    for name in re.findall(r'"([\w.]+\.(?:en|cs|de)(?:\.gz)?)"', text):
        (tmp_path / name).write_text(f"{name}\n")
    assert f"{pair} base × 1" in planned(example)


@pytest.mark.spawns
def test_attention_by_hand_is_what_the_page_prints_and_the_model_computes() -> None:
    """The page has the exact output. The model's attention has the result of the steps."""
    command, environment = [sys.executable, "examples/attention_by_hand.py"], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert f"```text\n{done.stdout}```" in (ROOT / "docs" / "attention-by-hand.md").read_text()
    steps = {part.splitlines()[0]: part.splitlines()[1:] for part in re.split(r"\n(?=\S)", done.stdout.strip())}
    ends = [steps["4. Times the values, weighted means of V:"], steps["6. Their weighted means of V:"]]
    assert ends == [lines for what, lines in steps.items() if what.startswith("model.attention")]


def test_subsets_are_nested_and_share_one_vocabulary(tmp_path: Path, command_line: CommandLine) -> None:
    """The second subset has the first's file and 5,000 pairs more, and the first is encoded with its vocabulary."""
    files, own, cut = (
        [str(tmp_path / f"all.{language}") for language in ("en", "de")],
        tmp_path / "own",
        tmp_path / "cut",
    )
    for file in files:
        Path(file).write_text("".join(f"{file[-2:]} {n}\n" for n in range(13_000)))
    assert command_line.here("workflows.cli", "split", *files, "--out", str(own)).returncode == 0
    module, texts = "examples.scaling_with_data", [str(cut / f"{size}.toml") for size in (5000, 10000)]
    assert command_line.in_process(module, "cut", str(own / "text.toml"), str(cut)) == (0, "", "")
    assert re.findall(r'source = "(\w+\.en)"', Path(texts[1]).read_text())[:2] == ["5000.en", "10000.en"]
    assert len({line for each in cut.glob("*.en") for line in each.read_text().splitlines()}) == 10_000
    options = ["--profile", "multi30k", "--files", texts[0], "--files", texts[1], "--store", str(tmp_path / "runs")]
    planned = command_line.in_process(module, *options, "--plan", "--json").stdout
    inputs = {step["label"]: step["inputs"] for step in json.loads(planned)["steps"]}
    (vocabulary,) = (label for label in inputs if label.startswith("vocabulary"))
    assert all(vocabulary in inputs[f"encode en-x-{size}-de"] for size in (5000, 10000))


def test_gains_are_paired_by_seed(tmp_path: Path) -> None:
    """Gains of 1, 2 and 3 have a mean of 2, a deviation of 1 and t = 4.303; a fourth seed has no partner."""
    for file, scores in (("1.csv", (30, 35, 40)), ("5.csv", (31, 37, 43, 50))):
        rows = (f"en-de,base,{seed},{score}\n" for seed, score in enumerate(scores))
        (tmp_path / file).write_text("pair,model,seed,sacrebleu.test\n" + "".join(rows))
    command = [sys.executable, ROOT / "examples" / "paired_gains.py", tmp_path / "1.csv", tmp_path / "5.csv"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed[2:] == ["| 5 | en-de base | sacrebleu.test | +2.000 | [-0.484, +4.484] | 3 |"]
