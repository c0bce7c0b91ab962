"""workflows.runs.index: the page lists every run, links to what exists, escapes what it shows, needs nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from pipeline.errors import UserError
from pipeline.store.store import LocalStore
from tests.support.html_reader import Reader
from tests.support.tiny_runs import STEPS, begun, make_run
from workflows.runs.index import figure_text, write_index


def _read(store: LocalStore) -> tuple[str, Sequence[str]]:
    """The page, and the addresses in it."""
    page = write_index(store).read_text(encoding="utf-8")
    reader = Reader(page)
    assert reader.misnested == []
    assert not {"script", "img", "iframe", "object"} & set(reader.tags)
    assert "http" not in page
    return page, [value or "" for name, value in reader.attributes if name in ("href", "src")]


def test_runs_are_listed_newest_first_with_what_came_out(tmp_path: Path) -> None:
    """Figures, states, where a run stopped and why, the commands; links lead to files that are there."""
    store = LocalStore(tmp_path)
    make_run(store, "1", figures={"paper BLEU EN-DE base": 83.125}, command="python -m workflows.reproduce_table2 --x")
    make_run(store, "2", models={"en-de base": {"decoding.beam_size": 8, "training.seed": 1}})
    failing = replace(STEPS[0], state="running")
    with pytest.raises(UserError), begun(store, "3", profile="other", steps=[failing]):
        raise UserError("no <space> left")
    page, addresses = _read(store)
    names = ["table2/other/1", "table2/embedded/2", "table2/embedded/1"]
    places = [page.index(f"{name}</") for name in names]
    assert places == sorted(places)
    assert "3 in this folder, newest first: 1 failed, 2 finished." in " ".join(page.split())
    for shown in (
        "83.12",
        "python -m workflows.reproduce_table2 --x",
        "Stopped in train en-de base",
        "no &lt;space&gt;",
    ):
        assert shown in page
    assert "<code>decoding.beam_size</code> 4 → 8" in page
    assert f"aiayn translate {tmp_path}/table2/embedded/2/en-de-base" in page
    assert "table2/embedded/2/report.html" in addresses
    assert "table2/other/1/report.html" not in addresses
    local = [address for address in addresses if not address.startswith("data:")]
    assert len(local) > 8
    assert not [address for address in local if not (tmp_path / unquote(address)).is_file()]


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    """And how to make one."""
    page, _ = _read(LocalStore(tmp_path))
    assert "None in this folder yet" in page


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The workflow goes on."""
    (tmp_path / "index.html").mkdir()
    make_run(LocalStore(tmp_path))
    assert "index.html cannot be written" in caplog.text


@pytest.mark.parametrize(
    ("figure", "text"),
    [(83.125, "83.12"), (20, "20"), (20.0, "20"), (0.0, "0"), (5461.25, "5461.25"), (2.4e15, "2.4e+15"), (None, "–")],
)
def test_figures_are_brief(figure: float | None, text: str) -> None:
    """Two digits for what is small, six significant ones for what is large."""
    assert figure_text(figure) == text
