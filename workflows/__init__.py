"""What is run: the DAG of stages on Ray, profiles, one module a table, the report and the command line (paper §6)."""
