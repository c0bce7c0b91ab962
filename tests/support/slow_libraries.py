SLOW = {"torch", "ray", "mlflow", "matplotlib", "scipy", "pandas", "pyarrow", "sacrebleu", "sacremoses"}
"""Each takes 0.1 to 2 s to import."""
