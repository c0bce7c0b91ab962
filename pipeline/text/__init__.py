"""Turns raw lines into batches of token ids (paper §5.1)."""
