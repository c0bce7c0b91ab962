"""Adds files to the runs that MLflow already has of a training, in whatever experiment they are."""

import logging
import os
from pathlib import Path

from workflows.tracking.tracker import TRAINING_TAG, default_uri

logger = logging.getLogger(__name__)


def attach(runs: Path, training: str, folder: Path, fingerprint: str, into: str) -> int:
    """Sends the files of an artifact's folder, once, to each run of a training; returns how many runs there are.

    `training` and `fingerprint` are those of the training and of the artifact; `into` names the folder on the runs. A
    tracking server that does not answer is a warning: the files are on disk.
    """
    uri = default_uri(runs)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return 0
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # by default MLflow retries for minutes
    from mlflow.tracking import MlflowClient  # takes 2 to 3 s

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    tag = f"aiayn.artifact.{folder.name}"
    try:
        client = MlflowClient(tracking_uri=uri)
        experiments = [one.experiment_id for one in client.search_experiments()]
        found = client.search_runs(experiments, f"tags.`{TRAINING_TAG}` = '{training}'") if experiments else []
        for run in found:
            if run.data.tags.get(tag) != fingerprint:
                client.log_artifacts(run.info.run_id, str(folder), into)
                client.set_tag(run.info.run_id, tag, fingerprint)
    except Exception as error:
        logger.warning("MLflow does not take the figures: %s", str(error).split("\n")[0])
        return 0
    return len(found)
