"""What a training will cost, before it runs: disk, FLOP and hours."""
