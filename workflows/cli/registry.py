"""`aiayn export mlflow`: logs a model to MLflow and registers it, for `mlflow models serve`.

Each export is a version of the registered model, e.g. `aiayn-en-de-base`. The alias `newest` marks the last version,
and each profile's name the last one of that profile: `models:/aiayn-en-de-base@multi30k`.
"""

import logging
import os
import re
import shlex
import sys
from pathlib import Path

from pipeline.artifacts import Checkpoint
from pipeline.errors import UserError
from pipeline.evaluation.parser import settings_of
from pipeline.export.mlflow_model import contents, is_parser
from pipeline.store.artifact import MANIFEST
from pipeline.store.store import Store
from workflows.cli.prepared import runs_with, searched
from workflows.engine.dag import inputs_of
from workflows.names import named_folder, store_beside
from workflows.runs import DEFAULT_ROOT
from workflows.tracking.addresses import default_uri
from workflows.tracking.server import TRAINING_TAG, WORKFLOW_TAG, Server

RESERVED_ALIAS = re.compile(r"newest|latest|v\d+|", re.IGNORECASE)


def register(named: Path) -> str:
    """Registers the model of this folder or name, and returns the shell command that serves it.

    Unless a request says otherwise, it searches like its table did. If MLflow has its run of that table, the two are
    linked. Raises UserError if MLflow does not answer.
    """
    folder = named_folder("average", named, "model.safetensors")
    if not (folder / "joint.model").is_file():
        raise UserError(f"{folder} has no joint.model; average its run with `aiayn average` and name what that writes")
    manifest = Checkpoint(folder).manifest if (folder / MANIFEST).exists() else {}
    made_by = next(iter(runs_with(named, folder)), None)
    experiment, profile, table = (*made_by.name.split("/")[:2], made_by.record.table) if made_by else ("models", "", "")
    root = store_beside(folder, Store(DEFAULT_ROOT)).root
    server = Server(default_uri(root), experiment, root)
    place = "" if os.environ.get("MLFLOW_TRACKING_URI") else f"MLFLOW_TRACKING_URI={shlex.quote(server.uri)} "
    try:
        client, experiment_id = server.client, server.experiment_id
    except Exception as error:  # MLflow, SQLAlchemy, databases and HTTP have different errors
        raise server.rejected(error) from None

    import mlflow
    from mlflow.models import Model

    logging.getLogger("mlflow.pyfunc").setLevel(logging.WARNING)  # it logs each step
    mlflow.set_tracking_uri(server.uri)
    mlflow.set_experiment(experiment_id=experiment_id)
    tags = {WORKFLOW_TAG: table.rpartition("-")[2], TRAINING_TAG: next(iter(inputs_of(manifest)), "")}
    query = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in tags.items())
    run_id = next((run.info.run_id for run in client.search_runs([experiment_id], query)), None)
    name = registered_name(manifest.get("label", "").partition(" ")[2] or folder.name)
    content = contents(Checkpoint(folder), settings_of(folder) if is_parser(folder) else searched(named, folder))
    # What mlflow.pyfunc.log_model calls, but linked to a run that has ended.
    logged = Model.log(None, mlflow.pyfunc, name, run_id=run_id, name=name, tags=tags, **content)
    alias = re.sub(r"[^\w-]+", "-", profile)
    for each in {"newest"} if RESERVED_ALIAS.fullmatch(alias) else {"newest", alias}:
        client.set_registered_model_alias(name, each, logged.registered_model_version)
    programs = f'PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"'  # mlflow looks for uvicorn there
    serve = f"mlflow models serve -m models:/{name}/{logged.registered_model_version} --env-manager local --port 5001"
    return f"{programs} {place}{serve}"


def registered_name(model: str) -> str:
    """Returns a model's name in MLflow's registry, without characters that are special in its queries and addresses."""
    return "aiayn-" + re.sub(r"[^\w-]+", "-", model).strip("-")
