"""workflows.tracking.description: the text at the top of a workflow's page in MLflow."""

from pathlib import Path

from workflows.tracking.description import MOST_CHARACTERS, REST, description, shortened

TABLE = "# Table 2\n\n| model | BLEU |\n|---|---|\n| base | 27.3 |\n\n## What differs from the paper\n\nNothing.\n"


def test_it_has_the_table_links_and_addresses(tmp_path: Path) -> None:
    """Links to the files among the run's artifacts, the command, the models; the table alone, under a smaller title."""
    for name, text in {"table2.md": TABLE, "report.html": "<p>", "table2.json": "{}", "manifest.json": "{}"}.items():
        (tmp_path / name).write_text(text)
    told = description(tmp_path, "#/experiments/1/runs/2", "python -m x", ["models:/aiayn-en-de-base@newest"])
    assert told.startswith("[report.html](#/experiments/1/runs/2/artifacts/report.html) · ")
    assert "manifest" not in told
    assert "Made by `python -m x`" in told
    assert "`models:/aiayn-en-de-base@newest`" in told
    assert told.endswith("### Table 2\n\n| model | BLEU |\n|---|---|\n| base | 27.3 |")
    (tmp_path / "table2.md").unlink()
    assert "To load or serve" not in description(tmp_path, "#", "python -m x", [])


def test_a_long_text_is_cut_behind_a_line() -> None:
    """MLflow would cut it anywhere."""
    line = "| a row of a table |\n"
    cut = shortened(line * 1000)
    assert len(cut) <= MOST_CHARACTERS
    assert cut.removesuffix(REST).split("\n")[-1] == line.strip()
    assert cut.endswith(REST)
    assert shortened(line) == line
