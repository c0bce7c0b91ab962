"""Table 3: the rows are the paper's, their parameters are counted right, and the command shows the counts."""

import json
import sys
from dataclasses import replace

import pytest
import torch

from model.config import BASE, BIG
from model.parameters import count
from model.transformer import Transformer
from workflows import reproduce_table3
from workflows.console.command import run_app
from workflows.paper import TABLE_3, Variation, group
from workflows.tables import parameter_counts

BY_NAME = {row.name: row for row in TABLE_3}
PRINTED_ORDER = "base A1 A2 A3 A4 B1 B2 C1 C2 C3 C4 C5 C6 C7 D1 D2 D3 D4 E big"


def test_base_and_big_are_the_models_of_table_2() -> None:
    """With the vocabulary of EN-DE."""
    assert BY_NAME["base"].model(37_000) == BASE
    assert BY_NAME["big"].model(37_000) == BIG


def test_a_row_gives_the_model_and_the_label_smoothing_of_its_training() -> None:
    """D3 and D4 change the smoothing and not the model; every other row keeps the smoothing and changes the model."""
    assert {row.name: row.label_smoothing for row in TABLE_3 if row.label_smoothing != 0.1} == {"D3": 0.0, "D4": 0.2}
    assert [row.name for row in TABLE_3 if row.model(8000) == replace(BASE, vocabulary_size=8000)] == [
        "base",
        "D3",
        "D4",
    ]
    assert BY_NAME["E"].model(8000).positions == "learned"


@pytest.mark.parametrize("row", [row for row in TABLE_3 if group(row.name) == "A"], ids=lambda row: row.name)
def test_rows_a_keep_the_amount_of_computation(row: Variation) -> None:
    """The number of heads times their width stays 512, for keys and for values (§6.2)."""
    config = row.model(37_000)
    assert config.n_heads * config.d_k == config.n_heads * config.d_v == 512


@pytest.mark.parametrize("row", TABLE_3, ids=lambda row: row.name)
def test_counts_differ_from_base_as_in_the_paper(row: Variation) -> None:
    """They agree within 1 million, since printed counts are rounded; within 3 % where the vocabulary matters too."""
    (counted,) = parameter_counts.parameter_rows(chosen=[row])
    assert counted.name == row.name
    if row.parameters_millions is None:
        assert counted.verdict == ""
        assert counted.from_base == (1024 * 512 if row.name == "E" else 0)
        return
    printed = row.parameters_millions - 65
    widened = "d_model" in row.difference
    assert abs(counted.from_base / 1e6 - printed) <= (0.03 * abs(printed) if widened else 1.0)
    assert counted.verdict == ("" if row.name == "base" else "depends on the vocabulary" if widened else "agrees")


def test_base_has_the_parameters_of_the_formula() -> None:
    """By §3, projections have no bias, feed-forward has biases, a norm has gain and bias, one embedding is shared."""
    attention = 4 * 512 * 8 * 64
    feed_forward = 2 * 512 * 2048 + 2048 + 512
    norm = 2 * 512
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    assert 6 * (encoder_layer + decoder_layer) + 37_000 * 512 == count(BASE) == 63_045_632
    assert "without embeddings, base has 44.1." in parameter_counts.notes(37_000)[0]


def test_a_count_is_that_of_the_model_in_memory() -> None:
    """The count, which allocates no memory, is the number of parameters that a training holds."""
    for name in ("A1", "E"):
        small = replace(BY_NAME[name].model(50), n_layers=1, d_model=16, d_ff=24)
        assert count(small) == sum(parameter.numel() for parameter in Transformer(small).parameters())
    assert torch.get_default_device() == torch.device("cpu")


@pytest.mark.parametrize("name", ["C4", "C5", "big"])
def test_agreeing_sizes_are_those_with_which_a_wider_row_agrees(name: str) -> None:
    """With the smallest and the largest of these sizes the row is within 1 million; with one size beyond, it is not."""
    row = BY_NAME[name]
    (counted,) = parameter_counts.parameter_rows(20_000, [row])
    assert counted.agreeing_sizes is not None
    assert counted.printed_from_base_millions is not None
    first, last = counted.agreeing_sizes
    for size, agrees in ((first - 1, False), (first, True), (last, True), (last + 1, False)):
        (again,) = parameter_counts.parameter_rows(size, [row])
        assert (abs(again.from_base - counted.printed_from_base_millions * 1e6) <= 1e6) is agrees
        assert again.agreeing_sizes == counted.agreeing_sizes


def test_one_vocabulary_gives_every_printed_count_but_big_s() -> None:
    """With the sizes that the notes name, every count rounds to the paper's except that of big."""
    assert (
        "41,004 to 41,208 pieces fit every count except that of big, which needs 35,368 to 36,344"
        in parameter_counts.notes(37_000)[2]
    )
    for size in (41_004, 41_208):
        rows = [row for row in parameter_counts.parameter_rows(size) if row.printed_millions]
        assert [row.name for row in rows if round(row.parameters / 1e6) != row.printed_millions] == ["big"]
    (big,) = parameter_counts.parameter_rows(36_000, [BY_NAME["big"]])
    assert round(big.parameters / 1e6) == 213


def test_the_command_shows_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    """It shows all 20 rows with their changes in the paper's symbols, and cuts nothing off at 120 columns."""
    reproduce_table3.main(params=True)
    printed = capsys.readouterr().out
    lines = printed.rstrip().split("\n")
    shown = [" ".join(line.split()) for line in lines]
    assert " ".join(words.split()[0] for words in shown if words.split(" ")[0] in BY_NAME) == PRINTED_ORDER
    assert "B1 d_k 16 56.0 -7.1 58 -7 agrees" in shown
    assert "D3 ε_ls 0.0 63.0 0.0" in shown
    assert max(map(len, lines)) <= 120
    assert "…" not in printed


def test_the_command_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """The object has the rows and the vocabulary that were asked for, as numbers."""
    reproduce_table3.main(params=True, as_json=True, asked="C1,big", vocabulary_size=36_000)
    counts = json.loads(capsys.readouterr().out)
    assert counts["vocabulary_size"] == 36_000
    assert [(row["name"], row["printed_millions"], row["verdict"]) for row in counts["rows"]] == [
        ("C1", 36, "agrees"),
        ("big", 213, "depends on the vocabulary"),
    ]
    first = counts["rows"][0]
    assert first["parameters"] == 63_045_632 - 1000 * 512 + first["from_base"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--params", "--rows", "C,F"], "--rows F: there is no such row in Table 3"),
        (["--params", "--vocabulary-size", "0"], "'--vocabulary-size': Input should be greater than or equal to 1"),
        (["--json"], "--json and --vocabulary-size need --params"),
        (["--plan", "--rows", "F"], "--rows F: there is no such row in Table 3"),
        (["--plan", "--scheduler", "best"], "--scheduler best: choose fifo or asha"),
        (["--plan", "--pair", "en-cs"], "--pair en-cs: the profile has en-de, en-fr"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistake is on standard error, and nothing is on standard output."""
    monkeypatch.setattr(sys, "argv", ["reproduce_table3", *arguments])
    with pytest.raises(SystemExit) as stopped:
        run_app(reproduce_table3.app, "reproduce_table3")
    printed = capsys.readouterr()
    assert (stopped.value.code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert message in printed.err
