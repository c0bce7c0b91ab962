"""`aiayn watch`: a running workflow, seen from another terminal or on a page of this machine's own."""

import time
from collections.abc import Callable
from typing import Annotated

import typer

from pipeline.store.object_store import store_at
from workflows.console.command import console
from workflows.console.options import StoreOption
from workflows.watch.server import serving
from workflows.watch.snapshot import Snapshot, record_of, take
from workflows.watch.terminal import watch_live, watch_plain

PORT = 8077
BROKEN = 1
"""The exit status after a run that failed or was interrupted."""


def watch(
    run: Annotated[
        str | None, typer.Argument(help="A run, e.g. table2/embedded/1, or embedded for its newest.  [default: last]")
    ] = None,
    store: StoreOption = "runs",
    serve: Annotated[bool, typer.Option("--serve", help="Serve a page on this machine instead, until ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0: any that is free.")] = PORT,
) -> None:
    """Show a running workflow: its stages, its curves, and where it stopped. Ctrl-C ends the watching only."""
    where = store_at(store)

    def look() -> Snapshot:
        return take(where, record_of(where, run))

    look()  # what is wrong with the arguments is told at once
    if serve:
        _serve(look, port)
        return
    seen = watch_live(look, console) if console.is_terminal else watch_plain(look, console)
    if seen and seen.state in ("failed", "interrupted"):
        raise typer.Exit(BROKEN)


def _serve(look: Callable[[], Snapshot], port: int) -> None:
    with serving(look, port) as server:
        console.print(f"page: {server.address}  (this machine only; ctrl-C ends it)", highlight=False, soft_wrap=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return
