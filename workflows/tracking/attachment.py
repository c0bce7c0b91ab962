"""Adds files to the runs that MLflow already has of a training, in whatever experiment they are."""

from pathlib import Path

from workflows.tracking.addresses import default_uri
from workflows.tracking.tracker import Tracker


def attach(runs: Path, training: str, folder: Path, fingerprint: str, into: str) -> int:
    """Sends the files of an artifact's folder, once, to each run of a training; returns how many runs there are.

    `training` and `fingerprint` are those of the training and of the artifact; `into` names the folder on the runs. A
    tracking server that does not answer is a warning, and 0 is returned: the files are sent by the next command.
    """
    uri = default_uri(runs)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return 0
    tracker = Tracker(uri, "", runs)
    n_runs = tracker.attach(training, folder, fingerprint, into) or 0
    tracker.close()
    return n_runs
