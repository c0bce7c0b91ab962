"""The workflows: the DAG of stages on Ray, profiles, one module per table, and the command line (paper §6)."""

from workflows.requirements import check, is_command

if is_command():  # before the modules that it imports
    check()
