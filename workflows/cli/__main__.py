"""Runs `aiayn` as `python -m workflows.cli`, if it is not on the PATH."""

from workflows.cli.main import main

main()
