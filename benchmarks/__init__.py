"""Benchmarks against other libraries, and of a GPU. Run from a clone; no other package imports them."""
