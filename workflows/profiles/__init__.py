"""Profiles: named sets of settings for an experiment, given as differences from the paper's settings."""
