"""Checks and measures this project on a GPU in one run of at most 30 minutes: `make gpu`."""
