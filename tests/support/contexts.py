from pathlib import Path

from pipeline.context import Context, Listener, ignore


def new_context(folder: Path, emit: Listener = ignore) -> Context:
    """Makes a stage's folder."""
    folder.mkdir(parents=True)
    return Context(folder, emit)
