"""`aiayn curves`: a table's curves in MLflow, which runs on this machine until ctrl-C, without telemetry."""

import os
import socket
import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from pipeline.errors import UserError
from pipeline.store.store import Store
from workflows.cli.console import IS_TERMINAL, console, say
from workflows.cli.options import StoreOption
from workflows.names import named_run
from workflows.runs import runs_in
from workflows.tracking.addresses import default_uri, public_address
from workflows.tracking.server import Server

HOST, PORT = "127.0.0.1", 5000


def curves(
    run: Annotated[Path | None, typer.Argument(help="Name or folder: table2/embedded.  [default: last]")] = None,
    store: StoreOption = "runs",
) -> None:
    """Show a table's curves in MLflow. On this machine only, until ctrl-C; a server's address is printed."""
    in_store = Store.at(store).checked()
    if run:
        of_run = named_run(run if run.exists() or store == "runs" else in_store.root / run)
    elif runs := [*runs_in(in_store)]:
        of_run = max(runs, key=lambda each: each.time)
    else:
        raise UserError(f"no runs in {store} yet; aiayn table2 starts one")
    server = Server(default_uri(of_run.root), of_run.name.partition("/")[0], of_run.root)
    page = server.page(of_run.record.table.rpartition("-")[2])
    if server.uri.startswith("http"):
        say(f"curves: {public_address(server.uri).rstrip('/')}/{page}")
        return
    with socket.create_server((HOST, 0 if _listens(PORT) else PORT)) as free:
        port = free.getsockname()[1]
    address = f"http://{HOST}:{port}/{page}"
    command = [sys.executable, "-m", "mlflow", "ui", "--host", HOST, "--port", str(port), "--workers", "1"]
    # A database's address may have a password, which others could read in a command.
    variables = {**os.environ, "MLFLOW_BACKEND_STORE_URI": server.uri, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with TemporaryFile() as log, subprocess.Popen(command, env=variables, stdout=log, stderr=log) as mlflow:
        try:
            with console.status("starting MLflow"):
                while mlflow.poll() is None and not _listens(port):
                    time.sleep(0.2)
            if mlflow.poll() is None:
                say(f"curves: {address} (ctrl-C ends MLflow)")
                if IS_TERMINAL and (sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()):
                    webbrowser.open(address)
            mlflow.wait()
            log.seek(0)
            raise UserError(f"MLflow has ended: {log.read().decode(errors='replace').strip()[-500:]}")
        except KeyboardInterrupt:
            say("MLflow ends")
        finally:
            mlflow.terminate()


def _listens(port: int) -> bool:
    """Whether a program of this machine listens at a port."""
    with socket.socket() as asking:
        return asking.connect_ex((HOST, port)) == 0
