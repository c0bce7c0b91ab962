"""The Transformer and the mathematics around it (paper §3): tensors in, tensors out.

Imports torch and the standard library only; knows no file, no Ray, no MLflow.
"""
