"""`aiayn doctor`: what of this machine is as the workflows need it, and what to do about the rest."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from pipeline.store.object_store import store_named
from workflows.console.command import console
from workflows.console.options import AddressOption, StoreOption
from workflows.doctor import machine, services
from workflows.doctor.finding import Finding

STYLES = {"ok": "green", "warning": "yellow", "fails": "red"}
FAILED = 1


def doctor(
    store: StoreOption = "runs",
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check this machine, a line each: ok, warning or fails, with what to do. Exit status 1 if anything fails.

    It takes some seconds, mostly to load torch and, on a GPU, to compile a layer. It changes nothing.
    """
    found = []
    with nullcontext() if as_json else console.status("checking; loading torch and compiling take some seconds"):
        for finding in _findings(store, address):
            found.append(finding)
            if not as_json:
                _print(finding)
    failed = any(finding.verdict == "fails" for finding in found)
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "checks": [asdict(one) for one in found]}, ensure_ascii=False))
    raise typer.Exit(FAILED if failed else 0)


def _findings(store: str, address: str | None) -> Iterator[Finding]:
    yield machine.python()
    yield from machine.libraries()
    yield from machine.devices()
    yield machine.memory()
    yield from machine.shared_memory()
    yield machine.open_files()
    yield from services.ray(address)
    yield from services.store(store)
    yield services.tracking(store_named(store).root)


def _print(finding: Finding) -> None:
    line = Text.assemble((f"{finding.verdict:9}", STYLES[finding.verdict]), f"{finding.name:15}{finding.found}")
    if finding.remedy:
        line.append(f": {finding.remedy}")
    console.print(line, soft_wrap=True, highlight=False)
