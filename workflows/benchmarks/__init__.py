"""Benchmarks that measure preparation, training and decoding, and compare them with other libraries."""
