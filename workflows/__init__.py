"""The workflows: the DAG of stages on Ray, profiles, one module per table, reports and the command line (paper §6)."""
