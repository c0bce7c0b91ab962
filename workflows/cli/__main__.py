"""`python -m workflows.cli`: the command `aiayn` where it is not on the PATH."""

from workflows.cli.main import main

main()
