"""Storage for artifacts: typed folders, each made by one process at a time and published by a single rename."""
