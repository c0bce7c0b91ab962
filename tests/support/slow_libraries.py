"""The libraries that a command imports only where it needs them."""

SLOW = {"torch", "ray", "mlflow", "matplotlib", "scipy", "pandas", "pyarrow", "sacrebleu", "sacremoses"}
"""They take from a tenth of a second to two seconds to import."""
