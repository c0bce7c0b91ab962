"""Logs the models of Table 2 to MLflow in a form that it can serve, and registers them.

A model is logged once, however many runs use it. Its registered name is the language pair and the model, e.g.
`aiayn-en-de-base`. Each version is one set of weights with one search. The alias `newest` marks the last version
measured, and each profile's name the last version of that profile: `models:/aiayn-en-de-base@multi30k`.
"""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline.export.mlflow_model import save
from pipeline.settings import DecodingSettings
from pipeline.store.artifacts import Checkpoint
from pipeline.store.store import Store

TRANSLATOR_TAG = "aiayn.translator"
"""The tag for a checkpoint's fingerprint and its search, on the logged model."""
MODEL_TAG = "aiayn.model"
"""The tag for a version's model id, which MLflow's SQL store does not return."""
NEWEST = "newest"
RESERVED_ALIAS = re.compile(r"newest|latest|v\d+", re.IGNORECASE)


def registered_name(model: str, pair: str) -> str:
    """Returns a model's name in MLflow's registry."""
    words = [pair] * (not model.startswith(pair)) + [model]
    return "aiayn-" + re.sub(r"[^\w-]+", "-", " ".join(words)).strip("-")


def serve(
    client: Any, run: Any, name: str, model: Checkpoint, search: DecodingSettings, store: Store, tags: Mapping[str, str]
) -> None:
    """Logs and registers a run's model unless it is there, links it to the run, and moves the aliases to it.

    By default the model searches like the run.
    """
    from mlflow.entities import LoggedModelOutput

    searches = search.beam_size, search.length_penalty, search.max_extra_tokens
    identity, run_id = " ".join(map(str, (model.manifest["fingerprint"], *searches))), run.info.run_id
    copies = client.search_logged_models([run.info.experiment_id], f"tags.`{TRANSLATOR_TAG}` = '{identity}'")
    ready = [str(copy.model_id) for copy in copies if copy.status == "READY"]
    model_id = ready[0] if ready else _log(client, run, store.fetch(model.folder.name), search, identity)
    if model_id not in {output.model_id for output in client.get_run(run_id).outputs.model_outputs}:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    versions = client.search_model_versions(f"name = '{name}'")
    version = next((known for known in versions if known.tags.get(MODEL_TAG) == model_id), None)
    if version is None:
        # Not models:/ID, which MLflow looks up in the process's tracking store instead of the client's.
        source = client.get_logged_model(model_id).artifact_location
        version = client.create_model_version(
            name, source, run_id, {**tags, MODEL_TAG: model_id}, model_id=model_id, await_creation_for=0
        )
        # So that the model's page links to its versions, like with mlflow.register_model.
        listed = {"mlflow.modelVersions": json.dumps([{"name": name, "version": version.version}])}
        client.set_logged_model_tags(model_id, listed)
    profile = re.sub(r"[^\w-]+", "-", tags.get("profile", ""))
    usable = profile and not RESERVED_ALIAS.fullmatch(profile)
    for alias in (NEWEST, *([profile] if usable else [])):
        client.set_registered_model_alias(name, alias, version.version)


def _log(client: Any, run: Any, weights: Path, search: DecodingSettings, identity: str) -> str:
    """Logs a new model and returns its id. MLflow's `log_model` would use the process's server and run the model."""
    from mlflow.models import Model

    logging.getLogger("mlflow.pyfunc").setLevel(logging.WARNING)  # it logs each step
    name, run_id = re.sub(r"[/:.%\"']", "-", run.info.run_name), run.info.run_id  # MLflow rejects these characters
    logged = client.create_logged_model(run.info.experiment_id, name, run_id, {TRANSLATOR_TAG: identity})
    try:
        with TemporaryDirectory() as folder:
            description = Model(logged.artifact_location, run_id, model_id=logged.model_id)
            save(Path(folder), Checkpoint(weights), search, description)
            client.log_model_artifacts(logged.model_id, folder)
    except BaseException:
        client.delete_logged_model(logged.model_id)
        raise
    client.finalize_logged_model(logged.model_id, "READY")
    return str(logged.model_id)
