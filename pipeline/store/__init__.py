"""Where artifacts lie: typed folders, published by one rename, made by one process at a time."""
