from dataclasses import replace
from pathlib import Path

import pytest

from model.config import BASE
from model.flops import count_parameters
from pipeline.errors import UserError
from workflows.paper import TABLE_3, VARIATIONS
from workflows.profiles.loading import load_profile
from workflows.profiles.profile import Grid, Profile
from workflows.profiles.translation import EMBEDDED, MULTI30K, WMT14
from workflows.tables import table3_rows
from workflows.tables.table3_rows import GridRow, rows

NAMES = [variation.name for variation in TABLE_3]


def by_name(grid: Grid) -> dict[str, GridRow]:
    return {row.name: row for row in rows(grid)}


@pytest.mark.parametrize("profile", [EMBEDDED, MULTI30K, Profile(name="paper", corpora={}, recipes={})], ids=str)
def test_sizes_keep_the_paper_s_ratio_to_base(profile: Profile) -> None:
    base, by_row = profile.grid.training, by_name(profile.grid)
    assert list(by_row) == NAMES
    for variation in TABLE_3:
        model = by_row[variation.name].training.model
        for name, value in base.model.__dict__.items():
            varied = variation.difference.get(name, getattr(BASE, name))
            if isinstance(varied, int) and name != "vocabulary_size":
                assert getattr(model, name) * getattr(BASE, name) == varied * value
            elif name == "dropout":
                assert model.dropout == round(varied / BASE.dropout * value, 12)
            else:
                assert getattr(model, name) == variation.difference.get(name, value)
        smoothing = variation.difference.get("label_smoothing", base.optimizer.label_smoothing)
        assert by_row[variation.name].training.optimizer.label_smoothing == smoothing
    assert by_row["A1"].training == base.model_copy(update={"model": by_row["A1"].training.model})
    assert by_row["base"].training == base


@pytest.mark.parametrize("row", rows(WMT14.grid), ids=lambda row: row.name)
def test_parameter_counts_differ_from_base_as_in_the_paper(row: GridRow) -> None:
    from_base = count_parameters(row.training.model) - count_parameters(BASE)
    millions = VARIATIONS[row.name].parameters_millions
    if millions is None:
        assert from_base == (1024 * 512 if row.name == "E" else 0)
        return
    printed = millions - 65
    assert abs(from_base / 1e6 - printed) <= (0.03 * abs(printed) if "d_model" in row.difference else 1.0)


def test_big_trains_three_times_as_long() -> None:
    """Table 3 prints 100K steps for base and 300K for big; no other row changes them."""
    by_row = by_name(load_profile(overrides=["grid.training.updates=70"]).grid)
    assert by_row["big"].difference["updates"] == 210
    assert {name: row.training.updates for name, row in by_row.items() if row.training.updates != 70} == {"big": 210}


def test_a_size_that_would_not_be_whole_is_refused() -> None:
    """A base of two layers has no third of them. Rows that do not need a third are still trained."""
    grid = load_profile(overrides=["grid.training.model.n_layers=2"]).grid
    with pytest.raises(UserError, match=r"^row C1 takes 1/3 of base's N, but 2 is not .*\.n_layers to a multiple of 3"):
        rows(grid)
    assert [row.name for row in rows(grid, "B,C4")] == ["B1", "B2", "C4"]


def test_rows_of_the_user_s_own_come_from_a_toml_file(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(
        'profile = "multi30k"\n[grid.training]\nupdates = 600\n'
        "[grid.rows]\nF1 = {n_layers = 1, label_smoothing = 0.2}\nF2 = {d_ff = 100, updates = 9}\n"
    )
    typed = ["F2.warmup_steps=7", "G.attention_window=9", "base2.n_layers=1"]
    grid = load_profile(config=config, overrides=[f"grid.rows.{setting}" for setting in typed]).grid
    by_row = by_name(grid)
    assert list(by_row) == [*NAMES, "F1", "F2", "G", "base2"]
    first, second = by_row["F1"].training, by_row["F2"].training
    assert (first.model.n_layers, first.optimizer.label_smoothing, first.updates) == (1, 0.2, 600)
    assert (second.model.d_ff, second.optimizer.warmup_steps, second.updates) == (100, 7, 9)
    assert by_row["G"].training.model == replace(grid.training.model, attention_window=9)
    assert second.model.d_model == MULTI30K.grid.training.model.d_model
    assert by_row["F2"].difference == {"d_ff": 100, "updates": 9, "warmup_steps": 7}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("A1 = {n_layers = 1}", r"grid\.rows\.A1 is a row of Table 3; choose another name for your row"),
        ("F1 = {layers = 1}", r"grid\.rows\.F1: a row cannot change 'layers'; choose from n_layers"),
        ("F1 = {n_layers = 0}", "row F1: model: n_layers is 0; it must be at least 1"),
        ("F1 = 3", r"grid\.rows\.F1: Input should be a valid dictionary"),
    ],
)
def test_a_mistake_in_a_row_of_one_s_own_is_one_line(tmp_path: Path, written: str, message: str) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(f"[grid.rows]\n{written}\n")
    with pytest.raises(UserError, match=f"^{message}") as caught:
        rows(load_profile(config=config).grid)
    assert "\n" not in str(caught.value)


def test_rows_are_chosen_by_name_or_letter() -> None:
    """Selected rows are in the table's order, each once. "b" and "C9" select nothing, and "base2" is not base's."""
    assert table3_rows.chosen([*NAMES, "base2", "F1", "F2"], "base,F") == ["base", "F1", "F2"]
    assert table3_rows.chosen([*NAMES, "F1"], "big, F,B,B1,E") == ["B1", "B2", "E", "big", "F1"]
    assert table3_rows.chosen(NAMES, None) == NAMES
    for asked in ("b", "C9", "A,,B", "", "F"):
        with pytest.raises(UserError, match="no such row in Table 3; choose from base, A, A1"):
            table3_rows.chosen(NAMES, asked)
