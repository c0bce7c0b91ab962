"""MLflow: experiments, runs, curves and models."""
