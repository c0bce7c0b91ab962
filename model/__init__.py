"""The Transformer and the mathematics around it (paper §3): tensors in, tensors out.

It imports only torch and the standard library, and knows nothing of files, Ray or MLflow.
"""
