"""Forecasts of what a table will cost before it runs: disk, FLOP and hours."""
