"""Profiles: named settings of an experiment, as differences from the paper's."""
