"""Benchmark of a training's workers: `aiayn bench scale`."""
