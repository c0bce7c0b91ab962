"""Artifact storage: typed folders, each built by one process at a time and published by a single rename."""
