"""Triton kernels, each beside the plain torch expression that defines it."""
