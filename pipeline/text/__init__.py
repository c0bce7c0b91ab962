"""From raw lines to batches of token ids (paper §5.1)."""
