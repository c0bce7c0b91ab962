"""The files of examples/: the commands in their headers run as written."""

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
Planned = Callable[[str], str]
FUNCTIONS = "scaled", "dot_product", "additive"
ROW = r"^train en-de (\w+(?: seed \d)?) +to run"


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: CommandLine) -> Planned:
    """Returns the output of an example's command with --plan, run in `tmp_path`, which has `examples`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    def print_plan(example: str) -> str:
        header = (tmp_path / "examples" / example).read_text()
        command = re.search(r"^# +python -m (workflows\..*)$", header, re.MULTILINE)
        assert command, f"{example} has no command in its header"
        arguments = dict.fromkeys([*shlex.split(command[1]), "--plan", "--verbose"])
        done = command_line.here(*arguments, *H100, "--store", str(tmp_path / "runs"))
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return print_plan


@pytest.mark.parametrize(
    ("example", "line", "expected"),
    [
        # 256 more parameters for each piece: 4,000 and 5,000
        ("multi30k_smaller_vocabulary.toml", r"^(en-\w\w \w+ +\d\.\d) M ", ["en-de base 3.7", "en-fr base 3.9"]),
        # rows of one's own behind the paper's, and base with several seeds
        ("table3_own_rows.toml", ROW, ["base seed 1", "base seed 2", "base seed 3", "B1", "F1", "F2", "F3", "F4"]),
        # what `aiayn claims` compares
        (
            "attention_functions.toml",
            ROW,
            [f"{function}_{d_k} seed {seed}" for function in FUNCTIONS for d_k in (4, 128) for seed in (1, 2, 3)],
        ),
    ],
)
def test_the_plan_has_the_models_of_the_example(planned: Planned, example: str, line: str, expected: list[str]) -> None:
    found = [" ".join(words.split()) for words in re.findall(line, planned(example), re.MULTILINE)]
    assert sorted(found) == sorted(expected)


def test_rows_on_real_text_have_the_sizes_that_the_paper_prints(planned: Planned) -> None:
    """Seven rows of three seeds. One head is as wide as all of base's together, whose d_k is the paper's."""
    output = planned("table3_multi30k.toml")
    trained = set(re.findall(r"^train en-de (\w+) seed \d +to run", output, re.MULTILINE))
    assert trained == {"base", "A1", "A4", "B1", "D1", "D3", "E"}
    parameters = dict(re.findall(r"^en-de (\w+), 3 seeds, each +(\d\.\d) M ", output, re.MULTILINE))
    assert parameters["A1"] == parameters["A4"] == parameters["base"] > parameters["B1"]


@pytest.mark.parametrize(("example", "pair"), [("own_text.toml", "en-cs"), ("iwslt14.toml", "de-en")])
def test_own_text_is_found_beside_its_description(planned: Planned, tmp_path: Path, example: str, pair: str) -> None:
    (tmp_path / example).write_text(text := (ROOT / "examples" / example).read_text())
    for name in re.findall(r'"([\w.]+\.(?:en|cs|de)(?:\.gz)?)"', text):
        (tmp_path / name).write_text(f"{name}\n")
    assert f"train {pair} base" in planned(example)


@pytest.mark.spawns
def test_attention_by_hand_is_what_the_page_prints_and_the_model_computes() -> None:
    """The page has the exact output. The model's attention has the result of the steps."""
    done = subprocess.run(
        [sys.executable, "examples/attention_by_hand.py"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert f"```text\n{done.stdout}```" in (ROOT / "docs" / "attention-by-hand.md").read_text()
    steps = {part.splitlines()[0]: part.splitlines()[1:] for part in re.split(r"\n(?=\S)", done.stdout.strip())}
    ends = [steps["4. Times the values, weighted means of V:"], steps["6. Their weighted means of V:"]]
    assert ends == [lines for what, lines in steps.items() if what.startswith("model.attention")]
