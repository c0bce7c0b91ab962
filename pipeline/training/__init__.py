"""Training (paper §5.2 to §5.4): the loop, its checkpoints and its workers."""
