"""Table 3's rows are models with as many parameters as the paper prints, as differences from base (docs/table3.md)."""

from dataclasses import replace

import pytest

from model.config import BASE, BIG
from model.parameters import count
from model.transformer import Transformer
from workflows.paper import TABLE_3, Variation, group

BY_NAME = {row.name: row for row in TABLE_3}
PRINTED = [row for row in TABLE_3 if row.parameters_millions]


def test_rows_are_the_paper_s_in_its_order_with_its_digits() -> None:
    """There are 20 rows; a trailing zero is kept; big is the model of Table 2; base has 100K steps and big 300K."""
    assert " ".join(BY_NAME) == "base A1 A2 A3 A4 B1 B2 C1 C2 C3 C4 C5 C6 C7 D1 D2 D3 D4 E big"
    assert (BY_NAME["A2"].perplexity, BY_NAME["C5"].bleu) == ("5.00", "26.0")
    assert BY_NAME["base"].model(37_000) == BASE
    assert BY_NAME["big"].model(37_000) == BIG
    assert {row.name: row.updates for row in TABLE_3 if row.updates} == {"base": 100_000, "big": 300_000}
    printed = {"base": 65, "B1": 58, "B2": 60, "C1": 36, "C2": 50, "C3": 80, "C4": 28, "C5": 168, "C6": 53, "C7": 90}
    assert {row.name: row.parameters_millions for row in PRINTED} == {**printed, "big": 213}


def test_a_row_gives_the_model_and_the_label_smoothing_of_its_training() -> None:
    """D3 and D4 change the smoothing and not the model; every other row keeps the smoothing and changes the model."""
    assert {row.name: row.label_smoothing for row in TABLE_3 if row.label_smoothing != 0.1} == {"D3": 0.0, "D4": 0.2}
    same = [row.name for row in TABLE_3 if row.model(8000) == replace(BASE, vocabulary_size=8000)]
    assert same == ["base", "D3", "D4"]
    assert BY_NAME["E"].model(8000).positions == "learned"


@pytest.mark.parametrize("row", [row for row in TABLE_3 if group(row.name) == "A"], ids=lambda row: row.name)
def test_rows_a_keep_the_amount_of_computation(row: Variation) -> None:
    """The number of heads times their width stays 512, for keys and for values (§6.2)."""
    config = row.model(37_000)
    assert config.n_heads * config.d_k == config.n_heads * config.d_v == 512


@pytest.mark.parametrize("row", TABLE_3, ids=lambda row: row.name)
def test_counts_differ_from_base_as_in_the_paper(row: Variation) -> None:
    """They agree within 1 million, since printed counts are rounded; within 3 % where the vocabulary matters too."""
    from_base = count(row.model(37_000)) - count(BASE)
    if row.parameters_millions is None:
        assert from_base == (1024 * 512 if row.name == "E" else 0)
        return
    printed = row.parameters_millions - 65
    assert abs(from_base / 1e6 - printed) <= (0.03 * abs(printed) if "d_model" in row.difference else 1.0)


def test_base_has_the_parameters_of_the_formula() -> None:
    """By §3, projections have no bias, feed-forward has biases, a norm has gain and bias, one embedding is shared."""
    attention = 4 * 512 * 8 * 64
    feed_forward = 2 * 512 * 2048 + 2048 + 512
    norm = 2 * 512
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    assert 6 * (encoder_layer + decoder_layer) + 37_000 * 512 == count(BASE) == 63_045_632


def test_a_count_is_that_of_the_model_in_memory() -> None:
    """The count, which allocates no memory, is the number of parameters that a training holds."""
    for name in ("A1", "E"):
        small = replace(BY_NAME[name].model(50), n_layers=1, d_model=16, d_ff=24)
        assert count(small) == sum(parameter.numel() for parameter in Transformer(small).parameters())


@pytest.mark.parametrize(("size", "others"), [(41_004, ["big"]), (41_208, ["big"]), (41_003, ["C6", "big"])])
def test_one_vocabulary_gives_every_printed_count_but_big_s(size: int, others: list[str]) -> None:
    """With 41 004 to 41 208 pieces, every count rounds to the paper's except that of big."""
    rounded = {row.name: round(count(row.model(size)) / 1e6) for row in PRINTED}
    assert [row.name for row in PRINTED if rounded[row.name] != row.parameters_millions] == others


def test_big_needs_a_smaller_vocabulary() -> None:
    """With 36 000 pieces its count rounds to the paper's."""
    assert round(count(replace(BIG, vocabulary_size=36_000)) / 1e6) == 213
