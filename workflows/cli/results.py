"""`aiayn results`: one Markdown page from the records, tables and seeds of finished runs. No number is retyped."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import UserError
from workflows.claims.claims import judge
from workflows.claims.seeds import read
from workflows.cli.claims import EXPLANATION, HEADINGS, cells
from workflows.cli.console import say
from workflows.names import named_run
from workflows.tables.render import markdown_row

LOCAL = re.compile(r""" --(data|store|address)[ =]('[^']*'|"[^"]*"|[^\s'"])+""")
"""The options of a command that say where files and machines are."""


def results(
    runs: Annotated[list[Path], typer.Argument(help="Folders or names of runs, e.g. table3/multi30k/newest.")],
    out: Annotated[Path, typer.Option(help="Markdown file to write; each run's seeds.csv is copied beside it.")],
    title: Annotated[str, typer.Option(help="The page's first heading.")] = "Results",
) -> None:
    """Write a page of finished runs. Command, commit, devices, tables, and verdicts on the paper's claims."""
    lines, files = [f"# {title}", "", "Written by `aiayn results` from the runs' own records."], dict[Path, bytes]()
    for number, run in enumerate(map(named_run, runs), start=1):
        record = run.record
        if record.ended is None or not (tables := sorted(run.folder.glob("table*.md"))):
            raise UserError(f"{run.folder} has no finished table; rerun its command: {record.command}")
        heading, *table = tables[0].read_text(encoding="utf-8").splitlines()
        lines += ["", f"#{heading}: {run.name}", "", f"    {LOCAL.sub('', record.command)}", ""]
        ended = record.ended.strftime("%Y-%m-%d " * (record.ended.date() != record.began.date()) + "%H:%M")
        lines += [f"Commit {record.commit or 'unknown'}, {record.began:%Y-%m-%d %H:%M} to {ended} UTC."]
        lines += [f"Failed: {record.reason}."] * bool(record.reason)
        if (seeds := run.folder / "seeds.csv").exists():
            copied = out.parent / f"{out.stem}-{number}.csv"
            lines += [f"Every run's metrics: [{copied.name}]({copied.name}).", *_verdicts(seeds)]
            files[copied] = seeds.read_bytes()
        lines += ["#" * line.startswith("#") + line for line in table]
    try:
        for path, content in {out: ("\n".join(lines) + "\n").encode(), **files}.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror}); choose another file") from None
    say(f"page: {out}")


def _verdicts(seeds: Path) -> Iterator[str]:
    """Yields the judged claims as a table, or why none can be judged, as on generated text."""
    try:
        judged = [each for each in judge(read([seeds])) if each.effects]
    except UserError as error:
        judged = []
        yield f"No verdicts: {error}.".replace(f"{seeds}", seeds.name)
    if judged:
        yield from ("", "### Verdicts", "", EXPLANATION, "")
        for row in (HEADINGS, ("---",) * len(HEADINGS), *cells(judged)):
            yield markdown_row(text.replace("\n", "<br>") for text in row)
