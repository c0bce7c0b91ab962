"""Runs the command `aiayn` as `python -m workflows.cli`, for when it is not on the PATH."""

from workflows.cli.main import main

main()
